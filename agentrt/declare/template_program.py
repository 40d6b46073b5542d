"""What a template is when it runs: a plain text, a text with references, or a template compiled by jinja.

The first two never load jinja (90 ms to import, about a millisecond to compile one template). They look parts up and write
values down by the same two functions as the sandbox does, and a test holds all forms to the same results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentrt.declare.codes import Code
from agentrt.declare.limits import MAX_TEMPLATE_CHARS, MAX_TEXT_CHARS, MAX_VALUE_CHARS
from agentrt.declare.origin import Origin
from agentrt.declare.reference import NAMED_KINDS, Problem, Reference, ReferenceKind
from agentrt.declare.values import MissingPartError, ValueTooLargeError, part_of, text_of
from agentrt.errors import DeclarationError, TemplateError

if TYPE_CHECKING:
    from jinja2 import Template as JinjaTemplate
    from jinja2.runtime import Context

    from agentrt.declare.template_syntax import Syntax

Scope = Mapping[str, Any]
"""What templates and guards see; see ``Reference.look_up``."""

Spot = tuple[int, int | None]
"""A 1-based line and column inside a template."""


class Program(Protocol):
    @property
    def references(self) -> Mapping[Reference, Spot]: ...

    @property
    def is_constant(self) -> bool:
        """Whether it reads nothing and computes nothing."""
        ...

    def text(self, scope: Scope, origin: Origin | None) -> str:
        """Render to text.

        Raises:
            TemplateError: a part is missing, a value does not suit an operation, or a bound was passed.
        """
        ...

    def value(self, scope: Scope, origin: Origin | None) -> Any:
        """Give the value of the one expression the template consists of; its text when it is more than that.

        Raises:
            TemplateError: as for ``text``.
        """
        ...


def read_program(source: str, origin: Origin | None) -> Program:
    """Read a template.

    Raises:
        DeclarationError: it cannot be read or uses what is not allowed; tells everything that is wrong with it.
    """
    if not _MARKER.search(source):
        return PlainText(source)
    if len(source) > MAX_TEMPLATE_CHARS:
        message = f"a template of {len(source)} characters (the limit is {MAX_TEMPLATE_CHARS})"
        raise DeclarationError([Problem(Code.TOO_DEEP, message).diagnostic(origin)])
    pieces = _read_pieces(source)
    if pieces is not None:
        return Pieces(pieces)
    from agentrt.declare import template_syntax

    syntax = template_syntax.read(source)
    if syntax.problems:
        raise DeclarationError([problem.diagnostic(origin) for problem in syntax.problems])
    return Compiled(syntax)


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text without expressions; it stands for itself."""

    source: str

    @property
    def references(self) -> Mapping[Reference, Spot]:
        return {}

    @property
    def is_constant(self) -> bool:
        return True

    def text(self, scope: Scope, origin: Origin | None) -> str:
        return self.source

    def value(self, scope: Scope, origin: Origin | None) -> Any:
        return self.source


@dataclass(frozen=True, slots=True)
class Path:
    """``actions.search.output[0]``, as the keys to follow one after another."""

    keys: tuple[str | int, ...]
    spot: Spot

    @property
    def reference(self) -> Reference:
        kind = cast(ReferenceKind, self.keys[0])
        keys = tuple(str(key) for key in self.keys[1:])
        return Reference(kind, keys[0], keys[1:]) if kind in NAMED_KINDS else Reference(kind, "", keys)

    def look_up(self, scope: Scope, origin: Origin | None) -> Any:
        value: Any = scope
        try:
            for key in self.keys:
                value = part_of(value, key)
        except MissingPartError as error:
            raise _error(f"{self.reference}: {error}", self.spot, origin) from error
        return value


@dataclass(frozen=True, slots=True)
class Pieces:
    """Texts and references, one after another."""

    pieces: tuple[str | Path, ...]

    @property
    def references(self) -> Mapping[Reference, Spot]:
        found: dict[Reference, Spot] = {}
        for piece in self.pieces:
            if isinstance(piece, Path):
                found.setdefault(piece.reference, piece.spot)
        return found

    @property
    def is_constant(self) -> bool:
        return False

    def text(self, scope: Scope, origin: Origin | None) -> str:
        texts: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                texts.append(piece)
                continue
            try:
                texts.append(text_of(piece.look_up(scope, origin)))
            except (ValueTooLargeError, ValueError, TypeError, RecursionError) as error:
                raise _error(f"{piece.reference}: {error}", piece.spot, origin) from error
        num_chars = sum(map(len, texts))
        if num_chars > MAX_TEXT_CHARS:
            raise _error(
                f"it makes a text of {num_chars} characters (the limit is {MAX_TEXT_CHARS})", (1, None), origin
            )
        return "".join(texts)

    def value(self, scope: Scope, origin: Origin | None) -> Any:
        paths = [piece for piece in self.pieces if not isinstance(piece, str) or piece.strip()]
        if len(paths) == 1 and isinstance(paths[0], Path):
            return paths[0].look_up(scope, origin)
        return self.text(scope, origin)


class Compiled:
    """A template of jinja's; compiled when it is first rendered.

    Two threads may compile it at the same time; they come to the same result, and either is kept.
    """

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._as_text: JinjaTemplate | None = None
        self._as_value: JinjaTemplate | None = None

    @property
    def references(self) -> Mapping[Reference, Spot]:
        return self._syntax.references

    @property
    def is_constant(self) -> bool:
        return False

    def text(self, scope: Scope, origin: Origin | None) -> str:
        from agentrt.declare.template_syntax import compile_text

        if self._as_text is None:
            self._as_text = compile_text(self._syntax)
        return cast(str, _run(self._as_text, scope, origin, _collect))

    def value(self, scope: Scope, origin: Origin | None) -> Any:
        from agentrt.declare.template_syntax import compile_value

        if self._as_value is None:
            expression = self._syntax.expression
            if expression is None:
                return self.text(scope, origin)
            self._as_value = compile_value(expression)
        return _run(self._as_value, scope, origin, _take_value)


def _run(template: JinjaTemplate, scope: Scope, origin: Origin | None, collect: Any) -> Any:
    from jinja2 import TemplateError as JinjaError

    from agentrt.declare.template_budget import BUDGET, Budget, BudgetExceededError

    context = template.new_context({**scope, BUDGET: Budget()})
    reason: str
    cause: Exception
    try:
        return collect(template, context)
    except (JinjaError, BudgetExceededError, ValueTooLargeError, MissingPartError) as error:
        reason, cause = str(error) or type(error).__name__, error
    except RecursionError as error:
        reason, cause = "a value is nested too deeply", error
    except Exception as error:
        # A filter or operator met a value of a kind it was not made for.
        reason, cause = f"{error}" or type(error).__name__, error
    raise _error(reason, (_line_of(template, cause), None), origin) from cause


def _collect(template: JinjaTemplate, context: Context) -> str:
    from agentrt.declare.template_budget import BUDGET, Budget

    budget: Budget = context[BUDGET]
    pieces: list[str] = []
    num_chars = 0
    for piece in template.root_render_func(context):
        num_chars += len(piece)
        budget.charge(len(piece))
        budget.check_text(num_chars)
        pieces.append(piece)
    return "".join(pieces)


def _take_value(template: JinjaTemplate, context: Context) -> Any:
    from jinja2.runtime import Undefined

    from agentrt.declare.values import check_size

    for _ in template.root_render_func(context):
        pass
    value = context.vars["value"]
    stack = [value]
    check_size(value, max_chars=MAX_VALUE_CHARS)
    while stack:
        part = stack.pop()
        if isinstance(part, Undefined):
            str(part)  # raises, with the message of the part that is missing
        elif isinstance(part, Mapping):
            stack.extend(part.values())
        elif isinstance(part, list | tuple):
            stack.extend(part)
    return value


def _line_of(template: JinjaTemplate, error: BaseException) -> int:
    """Find the template's own line in the traceback of an error that it raised."""
    line, traceback = 1, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def _error(reason: str, spot: Spot, origin: Origin | None) -> TemplateError:
    line, column = spot
    if origin is None and line > 1:
        reason = f"{reason} (line {line} of the template)"
    return TemplateError(f"template: {reason}", place=origin.at(line, column) if origin else None)


_MARKER = re.compile(r"\{[{%#]")
_PLAIN_REFERENCE = re.compile(
    r"""\{\{\s*(?P<root>inputs|actions|state|item_index|item)
        (?P<parts>(?: \.(?!__)[A-Za-z_]\w*
           | \[(?:0|[1-9]\d{0,5})\]
           | \['(?!__)[^'\\\n{}]+'\]
           | \["(?!__)[^"\\\n{}]+"\]
        )*)\s*\}\}""",
    re.ASCII | re.VERBOSE,
)
_PART = re.compile(r"""\.(?P<name>\w+)|\[(?P<index>\d+)\]|\[(?P<quote>['"])(?P<key>.+?)(?P=quote)\]""", re.ASCII)


def _read_pieces(source: str) -> tuple[str | Path, ...] | None:
    """Read a template that is text and plain references; None when it is anything more."""
    if "\r" in source:
        return None  # jinja's rules for line ends are jinja's business
    pieces: list[str | Path] = []
    end = 0
    for match in _PLAIN_REFERENCE.finditer(source):
        if match.start() > end:
            pieces.append(source[end : match.start()])
        if match["root"] in NAMED_KINDS and not match["parts"]:
            return None  # incomplete; template_syntax says so
        keys: list[str | int] = [match["root"]]
        for part in _PART.finditer(match["parts"]):
            keys.append(int(part["index"]) if part["index"] else part["name"] or part["key"])
        line = source.count("\n", 0, match.start(1)) + 1
        column = match.start(1) - source.rfind("\n", 0, match.start(1))
        pieces.append(Path(tuple(keys), (line, column)))
        end = match.end()
    if end < len(source):
        pieces.append(source[end:])
    if any(_MARKER.search(piece) for piece in pieces if isinstance(piece, str)):
        return None
    return tuple(pieces)
