"""The language of guards: CEL read by cel-python, and held to what can be checked before a run.

cel-python (0.2 s to import, a parser built once) gives a syntax tree with lines and columns. It finds unknown names and
functions only when it evaluates; here they are checked against lists when a guard is read, and what the guard refers to
is noted. What could blow up is bounded: the length of the source, the depth of its tree (evaluation is recursive), and the
passes that its macros over lists (``all``, ``exists``, ``map`` ...) could come to.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentrt.declare.codes import Code
from agentrt.declare.limits import MAX_GUARD_CHARS, MAX_GUARD_DEPTH, MAX_GUARD_MADE_CHARS, MAX_GUARD_PASSES
from agentrt.declare.reference import NAMED_KINDS, Problem, Reference
from agentrt.errors import nearest_match

if TYPE_CHECKING:
    from celpy import Environment
    from lark import Token, Tree

MACROS = ("all", "exists", "exists_one", "filter", "map")
FUNCTIONS = (
    "bool", "bytes", "contains", "double", "duration", "dyn", "endsWith", "getDate", "getDayOfMonth", "getDayOfWeek",
    "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "has", "int",
    "matches", "size", "startsWith", "string", "timestamp", "type", "uint",
)  # fmt: skip
TYPES = ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint")
"""Names of types, as ``type(x) == string`` uses them."""
_OWN_MEANING = frozenset({"ident", "dot_ident", "ident_arg", "literal", "list_lit", "map_lit"})
"""Rules that mean something even around a single part."""


@dataclass(slots=True)
class Loops:
    """What bounds the work of a guard's macros.

    No macro goes over a list longer than all literal items plus the longest list of the data, once for each ``+``; the
    passes are at most that to the power of the macros' nesting, for each macro. In a pass ``+`` can make one text as
    long as all texts of the data.
    """

    num_macros: int = 0
    depth: int = 0
    num_literal_items: int = 0
    num_additions: int = 0

    def check(self, *, longest_list: int = 0, num_chars: int = 0) -> None:
        """Raise ValueError when the macros could run too long over data of that size."""
        if not self.num_macros:
            return
        length = (self.num_literal_items + longest_list) * (1 + self.num_additions)
        num_passes = self.num_macros * length**self.depth
        if num_passes > MAX_GUARD_PASSES:
            raise ValueError(
                f"its macros could take {num_passes} passes over lists of up to {length} items "
                f"(the limit is {MAX_GUARD_PASSES})"
            )
        if num_passes * num_chars * self.num_additions > MAX_GUARD_MADE_CHARS:
            raise ValueError(f"its macros could make a text of more than {MAX_GUARD_MADE_CHARS} characters")


@dataclass(slots=True)
class GuardSyntax:
    """What reading a guard found out."""

    source: str
    tree: Tree[Token] | None = None
    references: dict[Reference, tuple[int, int | None]] = field(default_factory=dict)
    loops: Loops = field(default_factory=Loops)
    problems: list[Problem] = field(default_factory=list)


def read_guard(source: str) -> GuardSyntax:
    """Read a guard; what is wrong with it stands in ``problems``."""
    syntax = GuardSyntax(source)
    if not source.strip():
        syntax.problems.append(Problem(Code.GUARD_SYNTAX, "guard: it is empty", hint="write a CEL expression"))
        return syntax
    if len(source) > MAX_GUARD_CHARS:
        message = f"a guard of {len(source)} characters (the limit is {MAX_GUARD_CHARS})"
        syntax.problems.append(Problem(Code.TOO_DEEP, message))
        return syntax
    from celpy.celparser import CELParseError

    try:
        tree = environment().compile(source)
    except CELParseError as error:
        syntax.problems.append(_syntax_problem(source, error.line, error.column))
        return syntax
    except Exception as error:
        # lark's own errors, such as a character no token begins with at the very end.
        syntax.problems.append(Problem(Code.GUARD_SYNTAX, f"guard: {str(error).splitlines()[0]}"))
        return syntax
    if _is_too_deep(tree):
        syntax.problems.append(Problem(Code.TOO_DEEP, "guard: it is nested too deeply or has too many operators"))
        return syntax
    _place_booleans(source, tree)
    syntax.tree = tree
    _Reader(syntax).read(tree)
    try:
        syntax.loops.check()
    except ValueError as error:
        syntax.problems.append(Problem(Code.TOO_DEEP, f"guard: {error}"))
    syntax.problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
    return syntax


@functools.cache
def environment() -> Environment:
    """Return the one environment; building its parser takes a quarter of a second."""
    import celpy

    # Making an Environment raises the recursion limit of the whole process; a guard has no business with that.
    limit = sys.getrecursionlimit()
    try:
        return celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)


def _syntax_problem(source: str, line: int | None, column: int | None) -> Problem:
    if line is None or line < 1 or not column or column < 1:
        return Problem(Code.GUARD_SYNTAX, "guard: it ends too early", hint="see the CEL language definition")
    lines = source.splitlines()
    rest = lines[line - 1][column - 1 :] if line <= len(lines) else ""
    hint = None
    if "{{" in source:
        hint = "a guard is CEL, not a template: write it without {{ }}"
    elif rest.startswith("=") and not rest.startswith("=="):
        hint = "to compare, write =="
    elif rest.startswith(("and ", "or ", "not ")):
        hint = "write &&, || and !"
    elif rest.startswith(("'", '"')):
        hint = "a text needs a closing quote"
    at = f"at {rest[:20]!r}" if rest.strip() else "it ends too early"
    return Problem(Code.GUARD_SYNTAX, f"guard: syntax error, {at}", line, column, hint)


def _is_too_deep(tree: Tree[Token]) -> bool:
    level: list[Any] = [tree]
    for _ in range(MAX_GUARD_DEPTH):
        level = [child for node in level for child in getattr(node, "children", ())]
        if not level:
            return False
    return True


def _place_booleans(source: str, tree: Tree[Token]) -> None:
    """Note where ``true`` and ``false`` stand, which cel-python's parser forgets, and with it where what they begin does.

    Between one token of the tree and the next there are only operators, brackets, space and comments.
    """
    if "true" not in source and "false" not in source:
        return
    end = 0
    for token in tree.scan_values(lambda value: hasattr(value, "start_pos")):
        if token.start_pos is None:
            token.start_pos = source.find(token, end)
            token.end_pos = token.start_pos + len(token)
            token.line = token.end_line = source.count("\n", 0, token.start_pos) + 1
            token.column = token.start_pos - source.rfind("\n", 0, token.start_pos)
            token.end_column = token.column + len(token)
        end = token.end_pos or end
    for node in tree.iter_subtrees():
        ends: list[Any] = [getattr(child, "meta", child) for child in node.children]
        ends = [end for end in ends if getattr(end, "start_pos", None) is not None]
        if not ends:
            continue
        first, last, meta = ends[0], ends[-1], node.meta
        if getattr(meta, "start_pos", None) is None:
            meta.start_pos, meta.line, meta.column = first.start_pos, first.line, first.column
        if getattr(meta, "end_pos", None) is None:
            meta.end_pos, meta.end_line, meta.end_column = last.end_pos, last.end_line, last.end_column
        meta.empty = False


class _Reader:
    """Finds references and problems in a syntax tree, without recursion."""

    def __init__(self, syntax: GuardSyntax) -> None:
        self._syntax = syntax

    def read(self, tree: Tree[Token]) -> None:
        stack: list[tuple[Any, frozenset[str], int]] = [(tree, frozenset(), 0)]
        while stack:
            node, bound, depth = stack.pop()
            if not hasattr(node, "children"):
                continue
            node = unwrap(node)
            match node.data:
                case "ident" | "dot_ident" | "member_dot" | "member_index":
                    stack.extend((child, bound, depth) for child in self._read_path(node, bound))
                case "ident_arg" | "dot_ident_arg":
                    self._check_function(node.children[0])
                    stack.extend((child, bound, depth) for child in node.children[1:])
                case "member_dot_arg":
                    receiver, name, *arguments = node.children
                    stack.append((receiver, bound, depth))
                    if name in MACROS:
                        stack.extend(self._read_macro(name, arguments, bound, depth + 1))
                    else:
                        self._check_function(name)
                        if name == "matches" and arguments:
                            self._check_pattern(arguments[0])
                        stack.extend((argument, bound, depth) for argument in arguments)
                case "member_object":
                    self._note(Code.NOT_ALLOWED, "guard: messages are not allowed", node)
                case kind:
                    if kind in ("list_lit", "map_lit"):
                        self._syntax.loops.num_literal_items += sum(len(c.children) for c in node.children)
                    elif kind == "addition_add":
                        self._syntax.loops.num_additions += 1
                    stack.extend((child, bound, depth) for child in node.children)

    def _read_macro(
        self, name: Token, arguments: list[Any], bound: frozenset[str], depth: int
    ) -> Iterator[tuple[Any, frozenset[str], int]]:
        loops = self._syntax.loops
        loops.num_macros += 1
        loops.depth = max(loops.depth, depth)
        given = arguments[0].children if arguments else []
        variable = unwrap(given[0]) if given else None
        if len(given) != 2 or variable is None or variable.data != "ident":
            hint = f"write .{name}(x, ... x ...)"
            self._note(Code.GUARD_SYNTAX, f"guard: {name} needs a variable and an expression", name, hint)
            return
        yield given[1], bound | {str(variable.children[0])}, depth

    def _read_path(self, node: Any, bound: frozenset[str]) -> Iterator[Any]:
        """Read a name with the parts behind it; yield the subtrees that are still to be read."""
        links: list[Any] = []
        while node.data in ("member_dot", "member_index"):
            links.append(node)
            node = unwrap(node.children[0])
        links.reverse()
        path: list[str] = []
        for link in links:
            part = str(link.children[1]) if link.data == "member_dot" else constant_key(link.children[1])
            if part is None:
                break
            path.append(part)
        yield from (link.children[1] for link in links if link.data == "member_index")
        if node.data not in ("ident", "dot_ident"):
            yield node
            return
        token = node.children[0]
        name = str(token)
        if name in bound:
            return
        if name in NAMED_KINDS:
            if path:
                reference = Reference(name, path[0], tuple(path[1:]))
                self._syntax.references.setdefault(reference, (token.line, token.column))
                return
            example = f"{name}.NAME" + (".output" if name == "actions" else "")
            why = "is followed by a computed name" if links else "stands alone"
            self._note(Code.INCOMPLETE_REFERENCE, f"guard: {name!r} {why}", token, f"write {example}")
        elif links or name not in TYPES:
            known = [*NAMED_KINDS, *sorted(bound)]
            match = nearest_match(name, known)
            hint = f"did you mean {match!r}?" if match else f"known here: {', '.join(known)}; texts need quotes"
            self._note(Code.UNKNOWN_NAME, f"guard: unknown name {name!r}", token, hint)

    def _check_function(self, token: Token) -> None:
        if token not in FUNCTIONS:
            known = (*FUNCTIONS, *MACROS)
            match = nearest_match(str(token), known)
            hint = f"did you mean {match!r}?" if match else f"known functions: {', '.join(known)}"
            self._note(Code.UNKNOWN_NAME, f"guard: unknown function {str(token)!r}", token, hint)

    def _check_pattern(self, argument: Any) -> None:
        """Try a pattern that is written out, so that a mistake in it is found now."""
        import re2  # type: ignore[import-untyped]

        pattern = constant_key(argument.children[0]) if argument.children else None
        if pattern is None:
            return
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(pattern, options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace") if error.args else "it cannot be read"
            self._note(Code.GUARD_SYNTAX, f"guard: pattern {pattern!r}: {reason}", argument, "RE2 syntax is wanted")

    def _note(self, code: Code, message: str, where: Any, hint: str | None = None) -> None:
        at = getattr(where, "meta", where)
        self._syntax.problems.append(Problem(code, message, at.line, at.column, hint))


def unwrap(node: Any) -> Any:
    """Go down through rules that only pass on what is inside them."""
    while len(node.children) == 1 and node.data not in _OWN_MEANING:
        child = node.children[0]
        if not hasattr(child, "children"):
            break
        node = child
    return node


def constant_key(node: Any) -> str | None:
    """Return the text or whole number that a subtree consists of, as the key it is in a path; None for anything else."""
    node = unwrap(node)
    if node.data != "literal":
        return None
    token = node.children[0]
    if token.type == "INT_LIT":
        return str(token) if token.isdecimal() else None
    if token.type == "STRING_LIT" and "\\" not in token:
        try:
            return str(ast.literal_eval(str(token)))
        except (ValueError, SyntaxError):
            return None
    return None
