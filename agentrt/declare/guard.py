"""A guard: the condition on which an action runs, in CEL.

CEL (the Common Expression Language) always ends, has no side effects and is typed: comparing a text with a number is an
error, not false, so a mistyped condition fails loudly instead of skipping an action in silence. Parsing and evaluating
are cel-python's; this module bounds them, finds what a guard reads, and hands over only that part of the run's values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentrt.declare.guard_evaluation import evaluate
from agentrt.declare.guard_syntax import GuardSyntax, read_guard
from agentrt.declare.origin import Origin
from agentrt.declare.reference import Reference
from agentrt.declare.template import Scope
from agentrt.errors import DeclarationError, Place

if TYPE_CHECKING:
    from lark import Token, Tree


@dataclass(frozen=True, slots=True)
class Guard:
    """A CEL expression over ``inputs`` and ``actions``; made by ``Guard.parse``."""

    source: str
    references: frozenset[Reference]
    places: Mapping[Reference, Place] = field(default_factory=dict, compare=False, repr=False)
    """Where each reference is first used, when the guard came from a file."""
    origin: Origin | None = field(default=None, compare=False, repr=False)
    _syntax: GuardSyntax | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, source: str, origin: Origin | None = None) -> Guard:
        """Read a guard.

        Raises:
            DeclarationError: it cannot be read or names what is not there; tells everything that is wrong with it.
        """
        syntax = read_guard(source)
        if syntax.problems:
            raise DeclarationError([problem.diagnostic(origin) for problem in syntax.problems])
        places = {r: origin.at(*spot) for r, spot in syntax.references.items()} if origin else {}
        return cls(source, frozenset(syntax.references), places, origin, syntax)

    @property
    def tree(self) -> Tree[Token]:
        """The syntax tree as cel-python's parser made it, for whoever looks into a guard before a run."""
        tree = (self._syntax or read_guard(self.source)).tree
        assert tree is not None, "a guard that has problems is never made"
        return tree

    def holds(self, scope: Scope) -> bool:
        """Evaluate.

        Raises:
            TemplateError: a value is missing or of the wrong type, or the result is not true or false.
        """
        return evaluate(self._syntax or read_guard(self.source), scope, self.origin)

    def __reduce__(self) -> tuple[Callable[..., Guard], tuple[str, Origin | None]]:
        return Guard.parse, (self.source, self.origin)
