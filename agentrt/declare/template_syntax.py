"""The template language: jinja2 cut down to what can be checked before a run, read and rewritten for the filters.

What is allowed is listed (kinds of nodes, filters, tests, methods, names); a template with anything else is refused when
it is read, with its line and the nearest allowed name. ``inputs``, ``actions``, ``state`` and, in a ``for_each``, ``item``
and ``item_index`` are the only names from outside, and every use of them must say statically what is read:
``actions[name]`` with a computed name is refused, because then nobody could tell what the action waits for.

The same walk rewrites the tree so that nothing goes past the sandbox's meter: loops, ``~``, slices, comparisons and
method calls become filters of ours.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateSyntaxError, nodes

from agentrt.declare import template_filters as filters
from agentrt.declare.codes import Code
from agentrt.declare.limits import MAX_LOOP_DEPTH, MAX_TEMPLATE_DEPTH
from agentrt.declare.reference import ITEM_KINDS, NAMED_KINDS, Problem, Reference
from agentrt.declare.template_sandbox import Environment
from agentrt.errors import nearest_match

LOOP_PARTS = (
    "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0",
)  # fmt: skip

_STATEMENTS = (nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Assign)
_EXPRESSIONS = (
    nodes.Name, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.CondExpr, nodes.Filter,
    nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Concat, nodes.Compare, nodes.Operand,
    nodes.BinExpr, nodes.UnaryExpr,
)  # fmt: skip
_REFUSED = {
    nodes.Macro: "macros",
    nodes.CallBlock: "macros",
    nodes.Block: "blocks",
    nodes.Extends: "other templates",
    nodes.Include: "other templates",
    nodes.Import: "other templates",
    nodes.FromImport: "other templates",
    nodes.FilterBlock: "filter blocks",
    nodes.AssignBlock: "'set' blocks",
    nodes.NSRef: "namespaces",
    nodes.With: "'with' blocks",
}


@dataclass(slots=True)
class Syntax:
    """What reading a template found out."""

    tree: nodes.Template
    source: str
    references: dict[Reference, tuple[int, int | None]] = field(default_factory=dict)
    """Each reference with the line and column of its first use."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def expression(self) -> nodes.Expr | None:
        """The one expression the template consists of, white space around it aside; None when it has other parts."""
        found: nodes.Expr | None = None
        for statement in self.tree.body:
            if not isinstance(statement, nodes.Output):
                return None
            for part in statement.nodes:
                if isinstance(part, nodes.TemplateData):
                    if part.data.strip():
                        return None
                elif found is not None:
                    return None
                else:
                    found = part
        return found


@functools.cache
def environment() -> Environment:
    """Return the one environment; nothing in it changes after it was made."""
    return Environment()


def read(source: str) -> Syntax:
    """Read a template; what is wrong with it stands in ``problems``."""
    syntax = Syntax(nodes.Template([], lineno=1), source)
    try:
        syntax.tree = environment().parse(source)
    except TemplateSyntaxError as error:
        message = (error.message or "it cannot be read").rstrip(".")
        syntax.problems.append(Problem(Code.TEMPLATE_SYNTAX, f"template: {message}", error.lineno))
        return syntax
    except (RecursionError, ValueError, OverflowError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        syntax.problems.append(Problem(Code.TEMPLATE_SYNTAX, f"template: {reason}"))
        return syntax
    if _is_too_deep(syntax.tree):
        message = f"template: it is nested deeper than {MAX_TEMPLATE_DEPTH} levels"
        syntax.problems.append(Problem(Code.TOO_DEEP, message))
        return syntax
    _Reader(syntax).read_body(syntax.tree, {})
    syntax.problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
    return syntax


def compile_text(syntax: Syntax) -> JinjaTemplate:
    """Compile a template that had no problems into one that yields pieces of text."""
    return environment().from_string(syntax.tree)


def compile_value(expression: nodes.Expr) -> JinjaTemplate:
    """Compile the one expression of a template into one that leaves its value in the variable ``value``."""
    body: list[nodes.Node] = [nodes.Assign(nodes.Name("value", "store"), expression, lineno=expression.lineno)]
    return environment().from_string(nodes.Template(body, lineno=1))


def _is_too_deep(tree: nodes.Node) -> bool:
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_TEMPLATE_DEPTH):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return False
    return True


def _num_nodes(tree: nodes.Node) -> int:
    return 1 + sum(_num_nodes(child) for child in tree.iter_child_nodes())


Bound = dict[str, None]
"""Names of loop variables and of ``set`` in force; an ordered set."""


class _Reader:
    """Walks a tree whose depth is bounded: notes references and problems, and rewrites expressions in place."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._lines = syntax.source.splitlines() or [""]
        self._loop_depth = 0

    def read_body(self, node: nodes.Template, bound: Bound) -> None:
        self._read_statements(node.body, bound)

    def _read_statements(self, statements: list[nodes.Node], bound: Bound) -> None:
        for statement in statements:
            match statement:
                case nodes.Output():
                    statement.nodes = [
                        part if isinstance(part, nodes.TemplateData) else self._read(part, bound)
                        for part in statement.nodes
                    ]
                case nodes.If():
                    statement.test = self._read(statement.test, bound)
                    self._read_statements(statement.body, bound)
                    self._read_statements(list(statement.elif_), bound)
                    self._read_statements(statement.else_, bound)
                case nodes.For():
                    self._read_loop(statement, bound)
                case nodes.Assign():
                    statement.node = self._read(statement.node, bound)
                    self._bind(statement.target, bound)
                case _:
                    self._refuse(statement)

    def _read_loop(self, loop: nodes.For, bound: Bound) -> None:
        if loop.recursive:
            self._note(Code.NOT_ALLOWED, "template: recursive loops are not allowed", loop.lineno)
        self._loop_depth += 1
        if self._loop_depth == MAX_LOOP_DEPTH + 1:
            message = f"template: more than {MAX_LOOP_DEPTH} loops stand one inside another"
            self._note(Code.NOT_ALLOWED, message, loop.lineno)
        pass_work = sum(map(_num_nodes, loop.body)) + (_num_nodes(loop.test) if loop.test else 0) + 1
        loop.iter = self._as_filter(filters.LOOP, self._read(loop.iter, bound), nodes.Const(pass_work))
        inner = dict(bound)
        self._bind(loop.target, inner)
        if loop.test:
            loop.test = self._read(loop.test, inner)
        inner["loop"] = None
        self._read_statements(loop.body, inner)
        self._read_statements(loop.else_, dict(bound))
        self._loop_depth -= 1

    def _bind(self, target: nodes.Node, bound: Bound) -> None:
        """Bring the names of a ``for`` or ``set`` target into force."""
        if isinstance(target, nodes.Tuple):
            for item in target.items:
                self._bind(item, bound)
        elif isinstance(target, nodes.Name):
            if target.name in (*NAMED_KINDS, "loop"):
                self._note(
                    Code.NOT_ALLOWED, f"template: {target.name!r} cannot be given another meaning", target.lineno
                )
            bound[target.name] = None
        else:
            self._refuse(target)

    def _read(self, node: nodes.Node, bound: Bound) -> nodes.Expr:
        """Read an expression and return what stands in its place."""
        match node:
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                return self._read_path(node, bound)
            case nodes.Const():
                return node
            case nodes.Tuple() | nodes.List():
                node.items = [self._read(item, bound) for item in node.items]
            case nodes.Dict():
                for pair in node.items:
                    pair.key, pair.value = self._read(pair.key, bound), self._read(pair.value, bound)
            case nodes.CondExpr():
                node.test, node.expr1 = self._read(node.test, bound), self._read(node.expr1, bound)
                if node.expr2 is None:
                    node.expr2 = nodes.Const(None, lineno=node.lineno)
                else:
                    node.expr2 = self._read(node.expr2, bound)
            case nodes.Filter():
                return self._read_filter(node, bound)
            case nodes.Test():
                return self._read_test(node, bound)
            case nodes.Call():
                return self._read_call(node, bound)
            case nodes.Concat():
                parts = nodes.List([self._read(part, bound) for part in node.nodes], lineno=node.lineno)
                return self._as_filter(filters.CONCAT, parts)
            case nodes.Compare():
                node.expr = self._as_filter(filters.MEASURE, self._read(node.expr, bound))
                for operand in node.ops:
                    operand.expr = self._as_filter(filters.MEASURE, self._read(operand.expr, bound))
            case nodes.BinExpr():
                node.left, node.right = self._read(node.left, bound), self._read(node.right, bound)
            case nodes.UnaryExpr():
                node.node = self._read(node.node, bound)
            case _:
                self._refuse(node)
        assert isinstance(node, nodes.Expr) or self._syntax.problems
        return node if isinstance(node, nodes.Expr) else nodes.Const(None)

    def _read_path(self, node: nodes.Expr, bound: Bound) -> nodes.Expr:
        """Read a name with the parts behind it: ``actions.search.output[0].text``."""
        chain: list[nodes.Getattr | nodes.Getitem] = []
        root: nodes.Node = node
        while isinstance(root, (nodes.Getattr, nodes.Getitem)):
            chain.append(root)
            root = root.node
        chain.reverse()
        path: list[str] = []
        is_static = True
        for link in chain:
            part = link.attr if isinstance(link, nodes.Getattr) else _constant_part(link.arg)
            if part is not None and part.startswith("__"):
                self._note(Code.NOT_ALLOWED, f"template: {part!r} is not allowed", link.lineno)
            is_static = is_static and part is not None
            if is_static and part is not None:
                path.append(part)
        if isinstance(root, nodes.Name):
            self._read_root(root, path, bound, is_whole=len(path) == len(chain))
        for link in chain:
            if isinstance(link, nodes.Getitem) and not isinstance(link.arg, nodes.Slice):
                link.arg = self._read(link.arg, bound)
        result = root if isinstance(root, nodes.Name) else self._read(root, bound)
        assert isinstance(result, nodes.Expr)
        for link in chain:
            link.node = result
            result = link
            if isinstance(link, nodes.Getitem) and isinstance(link.arg, nodes.Slice):
                bounds = (link.arg.start, link.arg.stop, link.arg.step)
                read = [self._read(b, bound) if b else nodes.Const(None, lineno=link.lineno) for b in bounds]
                result = self._as_filter(filters.SLICE, link.node, *read)
        return result

    def _read_root(self, root: nodes.Name, path: list[str], bound: Bound, *, is_whole: bool) -> None:
        name = root.name
        if name in NAMED_KINDS:
            if path:
                reference = Reference(name, path[0], tuple(path[1:]))
                self._syntax.references.setdefault(reference, self._find(reference, root.lineno))
                return
            example = f"{name}.NAME" + (".output" if name == "actions" else "")
            why = "stands alone" if is_whole else "is followed by a computed name"
            self._note(
                Code.INCOMPLETE_REFERENCE, f"template: {name!r} {why}", root.lineno, name, hint=f"write {example}"
            )
        elif name == "loop" and "loop" in bound:
            if not path or path[0] not in LOOP_PARTS:
                seen = f"loop.{path[0]}" if path else "loop"
                match = nearest_match(path[0], LOOP_PARTS) if path else None
                hint = f"did you mean loop.{match}?" if match else f"it has {', '.join(LOOP_PARTS)}"
                self._note(Code.UNKNOWN_NAME, f"template: unknown {seen!r}", root.lineno, name, hint=hint)
        elif name not in bound and name in ITEM_KINDS:
            reference = Reference(name, "", tuple(path))
            self._syntax.references.setdefault(reference, self._find(reference, root.lineno))
        elif name not in bound:
            known = [*NAMED_KINDS, *bound]
            match = nearest_match(name, known)
            hint = f"did you mean {match!r}?" if match else f"known here: {', '.join(known)}"
            self._note(Code.UNKNOWN_NAME, f"template: unknown name {name!r}", root.lineno, name, hint=hint)

    def _read_filter(self, node: nodes.Filter, bound: Bound) -> nodes.Expr:
        self._check_known("filter", node.name, filters.FILTERS, node.lineno)
        if node.node is not None:
            node.node = self._read(node.node, bound)
        self._read_arguments(node, bound)
        names = _constant_names(node)
        if node.name == "map" and names:
            self._check_known("filter", names[0], filters.FILTERS, node.lineno)
        if node.name in ("select", "reject") and names:
            self._check_known("test", names[0], filters.TESTS, node.lineno)
        if node.name in ("selectattr", "rejectattr") and len(names) > 1:
            self._check_known("test", names[1], filters.TESTS, node.lineno)
        return node

    def _read_test(self, node: nodes.Test, bound: Bound) -> nodes.Expr:
        self._check_known("test", node.name, filters.TESTS, node.lineno)
        tested = self._read(node.node, bound)
        node.node = tested if node.name in filters.FREE_TESTS else self._as_filter(filters.MEASURE, tested)
        self._read_arguments(node, bound)
        return node

    def _read_call(self, node: nodes.Call, bound: Bound) -> nodes.Expr:
        self._read_arguments(node, bound)
        callee = node.node
        if isinstance(callee, nodes.Getattr):
            self._check_known("method", callee.attr, filters.METHODS, node.lineno)
            value, name = self._read(callee.node, bound), filters.METHOD_PREFIX + callee.attr
            return nodes.Filter(value, name, node.args, node.kwargs, None, None, lineno=node.lineno)
        if isinstance(callee, nodes.Name) and callee.name == "range" and "range" not in bound and node.args:
            return nodes.Filter(node.args[0], filters.RANGE, node.args[1:], [], None, None, lineno=node.lineno)
        name = f"{callee.name!r}" if isinstance(callee, nodes.Name) else "this"
        self._note(
            Code.NOT_ALLOWED, f"template: {name} cannot be called", node.lineno,
            hint=f"only range(...) and methods can: {', '.join(filters.METHODS)}",
        )  # fmt: skip
        return nodes.Const(None, lineno=node.lineno)

    def _read_arguments(self, node: nodes.Filter | nodes.Test | nodes.Call, bound: Bound) -> None:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self._note(Code.NOT_ALLOWED, "template: arguments with '*' are not allowed", node.lineno)
        node.args = [self._read(argument, bound) for argument in node.args]
        for keyword in node.kwargs:
            keyword.value = self._read(keyword.value, bound)

    def _check_known(self, kind: str, name: str, known: Iterable[str], lineno: int) -> None:
        names = sorted(known)
        if name not in names:
            match = nearest_match(name, names)
            hint = f"did you mean {match!r}?" if match else f"known {kind}s: {', '.join(names)}"
            self._note(Code.UNKNOWN_NAME, f"template: unknown {kind} {name!r}", lineno, name, hint=hint)

    def _refuse(self, node: nodes.Node) -> None:
        what = next((text for kind, text in _REFUSED.items() if isinstance(node, kind)), type(node).__name__)
        self._note(Code.NOT_ALLOWED, f"template: {what} are not allowed", node.lineno)

    def _note(self, code: Code, message: str, lineno: int, name: str | None = None, *, hint: str | None = None) -> None:
        column = None
        if name is not None and 1 <= lineno <= len(self._lines):
            found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self._lines[lineno - 1])
            column = found.start() + 1 if found else None
        self._syntax.problems.append(Problem(code, message, lineno, column, hint))

    def _find(self, reference: Reference, lineno: int) -> tuple[int, int | None]:
        """Find the column of a reference in its line; jinja tells only lines."""
        if not 1 <= lineno <= len(self._lines):
            return lineno, None
        keys = [re.escape(key) for key in reference.keys[1:]]
        links = [rf"\s*(?:\.\s*{key}(?!\w)|\[\s*['\"]?{key}['\"]?\s*\])" for key in keys]
        whole = rf"(?<!\w){reference.kind}" + "".join(links)
        begin = rf"(?<!\w){reference.kind}" + "".join(links[:1])
        for pattern in (rf"{whole}(?!\s*[.\[])", whole, begin):
            found = re.search(pattern, self._lines[lineno - 1])
            if found:
                return lineno, found.start() + 1
        return lineno, None

    @staticmethod
    def _as_filter(name: str, value: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
        for argument in arguments:
            argument.set_lineno(value.lineno)
        return nodes.Filter(value, name, list(arguments), [], None, None, lineno=value.lineno)


def _constant_part(argument: nodes.Node) -> str | None:
    if isinstance(argument, nodes.Const) and isinstance(argument.value, (str, int)):
        return str(argument.value)
    return None


def _constant_names(node: nodes.Filter) -> list[str]:
    return [
        argument.value
        for argument in node.args
        if isinstance(argument, nodes.Const) and isinstance(argument.value, str)
    ]
