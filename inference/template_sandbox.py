"""Where chat templates run: jinja's immutable sandbox, and in it a meter.

A chat template comes with a model file, from whoever made that. The sandbox keeps it from Python's internals,
but not from making a text of a gigabyte or looping for a day. So the template's tree is rewritten before it
is compiled: everything a loop passes over, everything written, joined, compared, filtered or cut is charged
to the rendering's Work by its length, before it is made wherever it could be much longer than what it is made
from. The allowance grows with the messages, and is a count and not a time: a chat that renders once renders
always.

Filters, tests and methods are those that chat templates use; ones that pad or repeat text are left out.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

BASE_WORK = 16 * 2**20
WORK_A_CHARACTER = 64
WORK_A_MESSAGE = 20_000
"""Characters a rendering may touch: so many at least, so many times those of the messages, so many for each message."""
PASS_WORK = 16
"""What one pass of a loop or one part of a list weighs, in characters."""
CALL_WORK = 256
"""What one call weighs."""
MAX_INT_BITS = 256
WORK = "_work"
"""Name of the meter in a rendering's context; the rewritten tree asks for it, a template cannot."""

FILTERS = frozenset(
    "abs capitalize count d default dictsort first float int items join last length list lower map "  # noqa: SIM905
    "max min reject rejectattr replace reverse round select selectattr sort string title tojson "
    "trim unique upper safe".split()
)
TESTS = frozenset(
    "boolean defined divisibleby eq equalto even false float ge greaterthan gt in integer iterable "  # noqa: SIM905
    "le lessthan lower lt mapping ne none number odd sequence string true undefined upper == != > >= "
    "< <=".split()
)
TEXT_METHODS = frozenset(
    "capitalize count endswith find index isalnum isalpha isdigit isspace join lower lstrip "  # noqa: SIM905
    "removeprefix removesuffix replace rfind rsplit rstrip split splitlines startswith strip title "
    "upper".split()
)


class TemplateWorkError(Exception):
    """A template would make too much or work too long."""


class TemplateRefusal(Exception):  # noqa: N818 - it is the template's own word about the messages
    """The template called ``raise_exception``."""


class Work:
    """What one rendering may still do."""

    def __init__(self, num_messages: int, num_chars: int) -> None:
        self.limit = BASE_WORK + WORK_A_MESSAGE * num_messages + WORK_A_CHARACTER * num_chars
        self._left = self.limit

    def charge(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise TemplateWorkError(f"it touches more than {self.limit} characters")

    def charge_value(self, value: Any) -> None:
        """Charge for going through ``value``, with everything in it."""
        stack = [value]
        while stack:
            node = stack.pop()
            if isinstance(node, str):
                self.charge(len(node))
            elif isinstance(node, Mapping):
                self.charge(PASS_WORK * len(node))
                stack.extend(node.values())
            elif isinstance(node, list | tuple | range):
                self.charge(PASS_WORK * len(node))
                if not isinstance(node, range):
                    stack.extend(node)


class _GenerationTag(Extension):
    """`{% generation %}`, which marks the assistant's words for training and writes nothing itself."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and runs metered templates; a rendering needs a Work under the name WORK."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        # trim_blocks and lstrip_blocks: how transformers renders, and so how templates are written.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            cache_size=0,
            optimized=False,
            extensions=[loopcontrols, _GenerationTag],
        )
        self.filters = {name: self.filters[name] for name in FILTERS if name in self.filters}
        self.filters.update({"join": _join, "replace": _replace, "tojson": _tojson})
        self.filters.update({"_each": _each, "_measure": _measure, "_concat": _concat})
        self.tests = {name: self.tests[name] for name in TESTS}
        kept = {name: self.globals[name] for name in ("range", "namespace", "dict")}
        self.globals = {**kept, "raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def compile_metered(self, source: str) -> Any:
        """Compile a template. Raises jinja2's TemplateSyntaxError."""
        tree = self.parse(source)
        for node in tree.find_all((nodes.Filter, nodes.Name)):
            name: str = getattr(node, "name")  # noqa: B009 - find_all forgets the classes it was given
            if name.startswith("_"):
                raise TemplateSyntaxError(f"the name {name!r} is not allowed", node.lineno)
        return self.template_class.from_code(self, self.compile(_Metering().visit(tree)), self.globals.copy())

    def wrap_str_format(self, value: Any) -> Any:
        """Refuse `format` and `format_map`, which pad; jinja2 itself would only wrap them."""
        return _refuse_format if super().wrap_str_format(value) is not None else None

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in TEXT_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        work: Work = context[WORK]
        work.charge(CALL_WORK)
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str):
            work.charge_value([owner, *args])
            if called.__name__ == "replace" and len(args) >= 2:
                _check_replace(work, owner, *args[:2])
            elif called.__name__ == "join" and args:
                return _joined(work, args[0], owner)
        result = super().call(context, called, *args, **kwargs)
        work.charge_value(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        work: Work = context[WORK]
        if operator == "%" and isinstance(left, str):
            raise TemplateWorkError("'%' formats no text here")
        if operator == "**" and (abs(left) > 2**16 or abs(right) > 16):
            raise TemplateWorkError(f"{left!r:.20} ** {right!r:.20} is too large")
        if operator == "*":
            sizes = [len(side) if isinstance(side, str | list | tuple) else 0 for side in (left, right)]
            counts = [side if isinstance(side, int) else 1 for side in (left, right)]
            work.charge(PASS_WORK * (sizes[0] * max(counts[1], 0) + sizes[1] * max(counts[0], 0)))
        if operator == "+":
            work.charge_value([left, right])
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and result.bit_length() > MAX_INT_BITS:
            raise TemplateWorkError(f"it makes a number of more than {MAX_INT_BITS} bits")
        return result


class _Metering(NodeTransformer):
    """Rewrites a template's tree so that everything long is charged for."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's spelling
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not supported", node.lineno)
        written = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = _filter(node.iter, "_each", nodes.Const(PASS_WORK + written))
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else _filter(part, "_measure") for part in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filter(node.expr, "_measure")
        for operand in node.ops:
            operand.expr = _filter(operand.expr, "_measure")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(node, "_measure") if isinstance(node.arg, nodes.Slice) else node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.node is not None:
            node.node = _filter(node.node, "_measure")
        return _filter(node, "_measure")


def _filter(node: nodes.Node, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


@pass_context
def _each(context: Context, items: Any, pass_work: int) -> Iterator[Any]:
    for item in items:
        context[WORK].charge(pass_work)
        yield item


@pass_context
def _measure(context: Context, value: Any) -> Any:
    context[WORK].charge_value(value)
    return value


@pass_context
def _concat(context: Context, parts: list[Any]) -> str:
    return _joined(context[WORK], parts, "")


@pass_context
def _join(context: Context, items: Any, separator: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        items = [context.environment.getitem(item, attribute) for item in items]
    return _joined(context[WORK], items, separator)


@pass_context
def _replace(context: Context, value: Any, old: str, new: str, count: int = -1) -> str:
    text, old, new = str(value), str(old), str(new)
    _check_replace(context[WORK], text, old, new)
    return text.replace(old, new, count)


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False, sort_keys: bool = False) -> str:
    if indent is not None and (type(indent) is not int or not 0 <= indent <= 8):
        raise TemplateWorkError(f"tojson takes an indent from 0 to 8, not {indent!r:.20}")
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys)


def _joined(work: Work, items: Iterable[Any], separator: Any) -> str:
    texts = []
    for item in items:
        texts.append(str(item))
        work.charge(PASS_WORK + len(texts[-1]) + len(str(separator)))
    return str(separator).join(texts)


def _check_replace(work: Work, text: str, old: Any, new: Any) -> None:
    work.charge(len(text) + text.count(str(old)) * len(str(new)))


def _refuse_format(*args: Any, **kwargs: Any) -> None:
    raise TemplateWorkError("texts have no format here")


def _raise_exception(message: Any = "") -> None:
    raise TemplateRefusal(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > 64 or re.search(r"%[^A-Za-z%]", form):
        raise TemplateWorkError(f"strftime_now takes a short format of plain fields, not {form!r:.80}")
    return datetime.datetime.now().strftime(form)


TEMPLATE_FAULTS: tuple[type[Exception], ...] = (
    TemplateError,
    TemplateWorkError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a template may end in that is the template's fault."""
