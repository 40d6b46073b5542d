"""Templates: how an action says what it reads, ``{{ actions.search.output }}``, in the notation of jinja2.

What a template reads is known without rendering it; the edges of a Dag follow from that. Rendering is bounded in time and
memory whatever the template says. The language: ``template_syntax``; its bounds: ``template_budget``; how values are
taken apart and written down: ``values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrt.declare.codes import Code, diagnose
from agentrt.declare.origin import Origin
from agentrt.declare.reference import Reference
from agentrt.declare.template_program import Program, Scope, read_program
from agentrt.errors import DeclarationError, Diagnostic, Place

__all__ = ["Reference", "Scope", "Template", "ValueTemplate"]

MAX_DEPTH = 64
"""How deep lists and mappings of a ValueTemplate may stand in one another."""

Position = tuple[str | int, ...]
"""Where a text stands in a value: the keys and indexes that lead to it."""


@dataclass(frozen=True, slots=True)
class Template:
    """A text with ``{{ ... }}`` in it; made by ``Template.parse``. ``references`` is known without rendering."""

    source: str
    references: frozenset[Reference]
    places: Mapping[Reference, Place] = field(default_factory=dict, compare=False, repr=False)
    """Where each reference is first used, when the template came from a file."""
    origin: Origin | None = field(default=None, compare=False, repr=False)
    _program: Program | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, source: str, origin: Origin | None = None) -> Template:
        """Read a template.

        Raises:
            DeclarationError: it cannot be read or uses what is not allowed; tells everything that is wrong with it.
        """
        program = read_program(source, origin)
        places = {r: origin.at(*spot) for r, spot in program.references.items()} if origin else {}
        return cls(source, frozenset(program.references), places, origin, program)

    def render(self, scope: Scope) -> str:
        """Render to text.

        Raises:
            TemplateError: a part is missing, a value does not suit an operation, or a bound was passed.
        """
        program = self._program or read_program(self.source, self.origin)
        return program.text(scope, self.origin)

    def __reduce__(self) -> tuple[Callable[..., Template], tuple[str, Origin | None]]:
        return Template.parse, (self.source, self.origin)


@dataclass(frozen=True, slots=True)
class ValueTemplate:
    """A YAML value (text, number, list, mapping) whose texts may hold ``{{ ... }}``; made by ``ValueTemplate.parse``.

    A text that is one expression and nothing else, white space around it aside, gives that expression's own value. The
    value is handed out as it is, not copied: whoever receives it must not change it.
    """

    source: Any
    references: frozenset[Reference]
    places: Mapping[Reference, Place] = field(default_factory=dict, compare=False, repr=False)
    origins: Mapping[Position, Origin] = field(default_factory=dict, compare=False, repr=False)
    _programs: Mapping[Position, Program] | None = field(default=None, compare=False, repr=False)
    """The texts that hold expressions, by where they stand."""

    @classmethod
    def parse(cls, source: Any, origins: Mapping[Position, Origin] | None = None) -> ValueTemplate:
        """Read a value; ``origins`` tells where its texts stand in a file.

        Raises:
            DeclarationError: a text cannot be read, or the value holds something that JSON has no form for.
        """
        origins = origins or {}
        programs: dict[Position, Program] = {}
        places: dict[Reference, Place] = {}
        references: set[Reference] = set()
        diagnostics: list[Diagnostic] = []
        for position, text in _texts(source, (), diagnostics):
            origin = origins.get(position)
            try:
                program = read_program(text, origin)
            except DeclarationError as error:
                diagnostics.extend(error.diagnostics)
                continue
            if not program.is_constant:
                programs[position] = program
            for reference, spot in program.references.items():
                references.add(reference)
                if origin:
                    places.setdefault(reference, origin.at(*spot))
        if diagnostics:
            raise DeclarationError(diagnostics)
        return cls(_plain(source), frozenset(references), places, origins, programs)

    @property
    def programs(self) -> Mapping[Position, Program]:
        """The texts that hold expressions, by where they stand; empty for a constant."""
        if self._programs is None:
            return ValueTemplate.parse(self.source, self.origins).programs
        return self._programs

    def render(self, scope: Scope) -> Any:
        """Render every text in it.

        Raises:
            TemplateError: a part is missing, a value does not suit an operation, or a bound was passed.
        """
        return self._render(self.source, (), self.programs, scope)

    def _render(self, value: Any, at: Position, programs: Mapping[Position, Program], scope: Scope) -> Any:
        if isinstance(value, str):
            program = programs.get(at)
            return program.value(scope, self.origins.get(at)) if program else value
        if isinstance(value, dict):
            return {key: self._render(part, (*at, key), programs, scope) for key, part in value.items()}
        if isinstance(value, list):
            return [self._render(part, (*at, index), programs, scope) for index, part in enumerate(value)]
        return value

    def __reduce__(self) -> tuple[Callable[..., ValueTemplate], tuple[Any, Mapping[Position, Origin]]]:
        return ValueTemplate.parse, (self.source, self.origins)


def _texts(value: Any, at: Position, diagnostics: list[Diagnostic]) -> Iterator[tuple[Position, str]]:
    """Go through the texts of a value; note what is no JSON."""
    if isinstance(value, str):
        yield at, value
    elif len(at) > MAX_DEPTH:
        diagnostics.append(diagnose(Code.TOO_DEEP, f"a value is nested deeper than {MAX_DEPTH} levels"))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if isinstance(key, str):
                yield from _texts(part, (*at, key), diagnostics)
            else:
                diagnostics.append(diagnose(Code.WRONG_TYPE, f"a key must be text, not {key!r:.80}"))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _texts(part, (*at, index), diagnostics)
    elif value is not None and not isinstance(value, bool | int | float):
        message = f"{value!r:.80} is a {type(value).__name__}, which JSON has no form for"
        diagnostics.append(diagnose(Code.WRONG_TYPE, message))


def _plain(value: Any) -> Any:
    """Copy a value into dicts and lists of our own, which nobody changes from outside."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
