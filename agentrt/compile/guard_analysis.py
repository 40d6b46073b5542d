"""What can become of guards, whatever the values: one that never holds, one that always does, two that exclude each other.

The values are tried. For something that guards only compare with constants a handful of values stands for all
(``guard_domain``), so the combinations can be gone through; a part that does more with what it reads is taken to come out
either way, the same way wherever the same part stands. So every outcome that a run can have is among those found here.
There may be others among them, where a schema says more than is understood or where there are too many combinations;
hence "never" and "always" are said only when they are certain.

The state of an agent changes during a run: two guards may see two values of it, where one guard sees one.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrt.compile.guard_domain import Constants, Domain, listed_values, representatives
from agentrt.compile.guard_expression import Call, Expression, ListOf, Read, expression_of, parts_of
from agentrt.compile.guard_operations import FAILED
from agentrt.compile.guard_outcome import (
    LOGIC,
    Outcome,
    cel_value,
    outcome_of,
    outcome_of_value,
    outcome_with,
    value_of,
)
from agentrt.declare.guard import Guard
from agentrt.declare.reference import Reference
from agentrt.declare.values import MissingPartError, part_of
from agentrt.errors import TemplateError

DomainOf = Callable[[Reference], Domain]
Results = frozenset[tuple[Outcome, ...]]

MAX_COMBINATIONS = 4096
_MAX_WORK = 40_000
"""Combinations times parts of the guards; about a tenth of a second."""
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_ORDERINGS = _COMPARISONS - {"_==_", "_!=_"}
_NOTHING_KNOWN: Mapping[Reference, Any] = {}
_FREE = "free"
"""Stands among the variables for one that is not worth trying."""
_UNKNOWN_TABLE: tuple[list[int], Mapping[tuple[int, ...], Outcome]] = ([], {(): Outcome.UNKNOWN})


def possible_results(
    guards: Sequence[Guard], domain_of: DomainOf, known: Mapping[Reference, Any] = _NOTHING_KNOWN
) -> Results:
    """Return what may become of all guards together in one run: one outcome for each, in their order.

    ``domain_of`` tells which values a reference may have, ``known`` the values it has for certain (also of what it is a
    part of). An Outcome.UNKNOWN stands for any of the other three.
    """
    values = _known_values({read for guard in guards for read in guard.references}, known)
    return _Question([_shape_of(guard) for guard in guards], domain_of, values).results()


def never_holds(
    guard: Guard,
    domain_of: DomainOf,
    known: Mapping[Reference, Any] = _NOTHING_KNOWN,
    *,
    failures_may_hold: bool = True,
) -> bool:
    """Say whether a guard is false whatever the values are.

    With ``failures_may_hold`` turned off, a guard that fails for some values and is false for all others never holds.
    """
    return not any(may_hold(each, failures_may_hold) for (each,) in possible_results([guard], domain_of, known))


def always_holds(guard: Guard, domain_of: DomainOf, known: Mapping[Reference, Any] = _NOTHING_KNOWN) -> bool:
    """Say whether a guard is true whatever the values are."""
    return possible_results([guard], domain_of, known) == {(Outcome.HOLDS,)}


def exclude_each_other(
    guards: Sequence[Guard],
    domain_of: DomainOf,
    known: Mapping[Reference, Any] = _NOTHING_KNOWN,
    *,
    failures_may_hold: bool = True,
) -> bool:
    """Say whether in no run two of the guards hold.

    With ``failures_may_hold`` turned off, a guard that fails counts as one that does not hold.
    """
    return all(
        not (may_hold(one, failures_may_hold) and may_hold(other, failures_may_hold))
        for pair in itertools.combinations(guards, 2)
        for one, other in possible_results(pair, domain_of, known)
    )


def fold(guard: Guard, known: Mapping[Reference, Any]) -> bool | None:
    """Return what a guard comes to for values that are given for certain; None when they do not decide it.

    A guard that fails for them is not decided: that is for the run to tell.
    """
    values = _known_values(guard.references, known)
    outcome = outcome_with(expression_of(guard), values)
    if outcome is Outcome.UNKNOWN and values.keys() == guard.references:
        # What is left are macros and the like, which the guard itself can be asked about.
        try:
            return guard.holds(_scope(guard.references, known))
        except TemplateError:
            return None
    return {Outcome.HOLDS: True, Outcome.DOES_NOT_HOLD: False}.get(outcome)


def may_hold(outcome: Outcome, failures_may_hold: bool = True) -> bool:
    """Say whether a guard with this outcome may be true."""
    return outcome in (Outcome.HOLDS, Outcome.UNKNOWN) or (failures_may_hold and outcome is Outcome.FAILS)


# -- the question taken apart


@dataclass(frozen=True, slots=True)
class _Atom:
    """A part of a guard that logic joins with others; ``compared`` is set when it compares one thing with constants."""

    expression: Expression
    reads: frozenset[Reference]
    compared: Reference | None
    constants: tuple[Any, ...]
    is_ordered: bool


@dataclass(frozen=True, slots=True)
class _Shape:
    """A guard as logic over atoms. A leaf is looked up by its identity, since to hash it means to go through it."""

    tree: Expression
    atoms: tuple[_Atom, ...]
    atom_of_leaf: Mapping[int, int]


@functools.lru_cache(maxsize=16_384)
def _shape_of(guard: Guard) -> _Shape:
    tree = expression_of(guard)
    numbers: dict[Expression, int] = {}
    atom_of_leaf: dict[int, int] = {}
    stack = [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, Call) and part.function in LOGIC:
            stack.extend(part.arguments)
        else:
            atom_of_leaf[id(part)] = numbers.setdefault(part, len(numbers))
    return _Shape(tree, tuple(_atom(leaf) for leaf in numbers), atom_of_leaf)


def _atom(part: Expression) -> _Atom:
    reads = frozenset(each.reference for each in parts_of(part) if isinstance(each, Read))
    sides = part.arguments if isinstance(part, Call) else ()
    others: Iterable[Expression] = ()
    compared: Reference | None = None
    is_ordered = False
    match part:
        case Read():
            compared = part.reference
        case Call(function="_in_", arguments=(Read() as read, ListOf() as listed)):
            compared, others = read.reference, listed.items
        case Call(function=function) if function in _COMPARISONS:
            compared = next((side.reference for side in sides if isinstance(side, Read)), None)
            others = [side for side in sides if not isinstance(side, Read)]
            is_ordered = function in _ORDERINGS
    constants = tuple(value_of(other, {}) for other in others)
    # A constant that is a list looks into the lists it is compared with, and one that fails is none.
    is_plain = all(value is None or isinstance(value, str | int | float) for value in constants)
    return _Atom(part, reads, compared if is_plain and len(reads) == 1 else None, constants, is_ordered)


@dataclass(slots=True)
class _Variable:
    """Something that takes one of several values, independently of all other variables.

    It is something read, with its values in CEL's form, or a part of a guard, with its outcomes.
    """

    values: Sequence[Any]
    work: int
    """How many comparisons it takes to try them."""
    read: Reference | None = None
    """What has these values; None where they are the outcomes of an atom."""


@dataclass(slots=True)
class _Question:
    """Guards with what is known of the values they read."""

    shapes: Sequence[_Shape]
    domain_of: DomainOf
    values: Mapping[Reference, Any]
    """In CEL's form, what is known for certain."""
    _variables: dict[Hashable, _Variable] = field(default_factory=dict)
    _depends_on: list[list[tuple[Hashable, ...]]] = field(default_factory=list)
    """For each guard and atom the variables that decide it."""

    def results(self) -> Results:
        """Go through all combinations of the variables' values."""
        self._find_variables()
        self._merge_alike()
        chosen = self._affordable()
        positions = {key: position for position, key in enumerate(chosen)}
        tables = [
            [
                ([positions[key] for key in keys], self._table(atom, keys))
                if all(key in positions for key in keys)
                else _UNKNOWN_TABLE
                for atom, keys in zip(shape.atoms, depends_on, strict=True)
            ]
            for shape, depends_on in zip(self.shapes, self._depends_on, strict=True)
        ]
        found = set()
        for combination in itertools.product(*(range(len(self._variables[key].values)) for key in chosen)):
            outcomes = [
                [table[tuple([combination[position] for position in at])] for at, table in of_guard]
                for of_guard in tables
            ]
            found.add(tuple(map(_outcome, self.shapes, outcomes)))
        return frozenset(found)

    def _find_variables(self) -> None:
        atoms = [(number, atom) for number, shape in enumerate(self.shapes) for atom in shape.atoms]
        unknown = {read for _, atom in atoms for read in atom.reads} - self.values.keys()
        plain = unknown - _nested(unknown)
        constants: dict[Reference, Constants] = {}
        for _, atom in atoms:
            if atom.compared in plain:
                constants.setdefault(atom.compared, Constants()).add(atom.constants, is_ordered=atom.is_ordered)
        domains = {read: self.domain_of(read) for read in plain}
        reading = Counter(read for _, atom in atoms for read in atom.reads)
        free = {
            atom.compared
            for _, atom in atoms
            if atom.compared in plain and reading[atom.compared] == 1 and _is_free(atom, domains[atom.compared])
        }
        listed = {read: found for read, domain in domains.items() if (found := listed_values(domain)) is not None}
        times: dict[Hashable, int] = {}
        self._depends_on = [[] for _ in self.shapes]
        for number, atom in atoms:
            reads = sorted(atom.reads - self.values.keys())
            if atom.compared in free:
                keys: tuple[Hashable, ...] = (_FREE,)
            elif atom.compared in plain or all(read in listed for read in reads):
                keys = tuple(_key(read, number, [read]) for read in reads)
                for read, key in zip(reads, keys, strict=True):
                    if key not in self._variables:
                        tried = listed.get(read) or representatives(domains[read], constants[read])
                        work = len(tried) * (1 + constants[read].count if read in constants else 1)
                        self._variables[key] = _Variable([cel_value(value) for value in tried], work, read)
            else:
                keys = (_key(atom.expression, number, reads),)
                times[keys[0]] = times.get(keys[0], 0) + 1
            self._depends_on[number].append(keys)
        for key, count in times.items():
            # A part that stands in one place only is as well left unknown.
            if count > 1:
                self._variables[key] = _Variable((Outcome.HOLDS, Outcome.DOES_NOT_HOLD, Outcome.FAILS), 3)

    def _merge_alike(self) -> None:
        """Keep one of all values of a variable that no atom tells apart; few are left, and fewer combinations."""
        deciding: dict[Hashable, list[_Atom]] = {}
        joined: set[Hashable] = set()
        for shape, depends_on in zip(self.shapes, self._depends_on, strict=True):
            for atom, keys in zip(shape.atoms, depends_on, strict=True):
                for key in keys:
                    deciding.setdefault(key, []).append(atom)
                joined.update(keys if len(keys) > 1 else ())
        for key, variable in self._variables.items():
            if variable.read is None or key in joined or variable.work > _MAX_WORK:
                continue
            kept: dict[tuple[Outcome, ...], Any] = {}
            for value in variable.values:
                values = {**self.values, variable.read: value}
                outcomes = [outcome_of_value(value_of(atom.expression, values)) for atom in deciding[key]]
                kept.setdefault(tuple(outcomes), value)
            variable.values = list(kept.values())

    def _affordable(self) -> list[Hashable]:
        """Choose variables, those with few values first, as long as their combinations can be gone through."""
        limit = min(MAX_COMBINATIONS, _MAX_WORK // (1 + sum(map(len, self._depends_on))))
        chosen: list[Hashable] = []
        combinations = 1
        for key, variable in sorted(self._variables.items(), key=lambda item: len(item[1].values)):
            combinations *= len(variable.values)
            if combinations > limit:
                break
            if variable.work <= _MAX_WORK:
                chosen.append(key)
        return chosen

    def _table(self, atom: _Atom, keys: tuple[Hashable, ...]) -> Mapping[tuple[int, ...], Outcome]:
        """Work out an atom's outcome for each combination of the values it depends on."""
        reads = sorted(atom.reads - self.values.keys())
        variables = [self._variables[key] for key in keys]
        if any(variable.read is None for variable in variables):
            return {(index,): outcome for index, outcome in enumerate(variables[0].values)}
        table = {}
        for indices in itertools.product(*(range(len(variable.values)) for variable in variables)):
            picked = [variable.values[index] for variable, index in zip(variables, indices, strict=True)]
            values = {**self.values, **dict(zip(reads, picked, strict=True))}
            table[indices] = outcome_of_value(value_of(atom.expression, values))
        return table


def _is_free(atom: _Atom, domain: Domain) -> bool:
    """Whether an atom comes out either way, so that what only it reads need not be tried."""
    if domain.schema == {"type": "string"}:
        return not atom.is_ordered and bool(atom.constants) and all(isinstance(each, str) for each in atom.constants)
    return not domain.schema


def _outcome(shape: _Shape, outcomes: Sequence[Outcome]) -> Outcome:
    return outcome_of(shape.tree, lambda leaf: outcomes[shape.atom_of_leaf[id(leaf)]])


def _key(what: Reference | Expression, number: int, reads: Iterable[Reference]) -> Hashable:
    """Name a variable: the same in all guards, except where it is about the state, which is another one for each."""
    return (what, number) if any(read.kind == "state" for read in reads) else what


def _nested(references: Iterable[Reference]) -> set[Reference]:
    """Return references that lead to a part of what another one leads to, and those others."""
    by_keys = {reference.keys: reference for reference in references}
    found: set[Reference] = set()
    for keys, reference in by_keys.items():
        for size in range(2, len(keys)):
            if keys[:size] in by_keys:
                found |= {reference, by_keys[keys[:size]]}
    return found


# -- what is given for certain


def _known_values(references: Iterable[Reference], known: Mapping[Reference, Any]) -> dict[Reference, Any]:
    """Return CEL values for the references that known values reach; FAILED where a known value has no such part."""
    if not known:
        return {}
    found: dict[Reference, Any] = {}
    for reference in references:
        above = _known_above(reference, known)
        if above is None:
            continue
        value = known[above]
        for key in reference.path[len(above.path) :]:
            value = _part(value, key)
        found[reference] = value if value is FAILED else cel_value(value)
    return found


def _known_above(reference: Reference, known: Mapping[Reference, Any]) -> Reference | None:
    """Return the known reference that this one is, or is a part of."""
    for size in range(len(reference.path) + 1):
        above = Reference(reference.kind, reference.name, reference.path[:size])
        if above in known:
            return above
    return None


def _part(value: Any, key: str) -> Any:
    """Take a value apart as a guard does, where null has no parts."""
    if value is None or value is FAILED:
        return FAILED
    try:
        return part_of(value, int(key) if isinstance(value, list | tuple) and key.isdecimal() else key)
    except MissingPartError:
        return FAILED


def _scope(references: Iterable[Reference], known: Mapping[Reference, Any]) -> dict[str, Any]:
    scope: dict[str, Any] = {"inputs": {}, "actions": {}, "state": {}}
    for reference in references:
        above = _known_above(reference, known)
        assert above is not None, "a scope is made only when all values are known"
        *path, last = above.keys
        target = scope
        for key in path:
            target = target.setdefault(key, {})
        target[last] = known[above]
    return scope
