"""What a picture of a Plan shows, whatever it is drawn with: boxes, lines between them, and who a colour stands for.

A colour stands for an agent, since who acts is what a reader looks for first; what no agent does is coloured by its type.
An input is drawn where something reads it: one that nothing reads (``check`` tells of it) would stand alone. What an action
reads of an input is a line of its own, apart from the edges between actions, which are the Plan's.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agentrt.compile.draw_action import does_of, notes_of
from agentrt.compile.draw_text import plain
from agentrt.compile.graph import PlanEdge, edges_of
from agentrt.compile.plan import Plan
from agentrt.compile.prune import Pruned
from agentrt.declare.action import Action
from agentrt.declare.call import DagCall, HumanCall
from agentrt.declare.dag import Dag
from agentrt.declare.reference import Reference


class BoxKind(enum.StrEnum):
    ACTION = "action"
    INPUT = "input"
    OUTPUT = "output"


class LineKind(enum.StrEnum):
    READS = "reads"
    """The target reads something of the source."""
    ORDER = "order"
    """The target waits for the source, and reads nothing of it."""
    VALUE = "value"
    """From an input, or to an output."""
    SAME = "same"
    """The target stands in for the source, which was a duplicate."""


@dataclass(frozen=True, slots=True)
class Box:
    """An action, an input or an output. ``id`` is made of letters and digits alone."""

    id: str
    kind: BoxKind
    name: str
    does: str = ""
    condition: str = ""
    """Its guard."""
    notes: tuple[str, ...] = ()
    """How it is joined, repeated, replaced: what a reader must not overlook."""
    family: str = ""
    """Whose colour it has; empty: none."""
    is_nested: bool = False
    """It runs a Dag of its own."""
    is_human: bool = False
    is_pruned: bool = False
    full: tuple[str, ...] = ()
    """Everything there is to say, a line each."""


@dataclass(frozen=True, slots=True)
class Line:
    source: str
    target: str
    kind: LineKind
    condition: str = ""
    stream: bool = False
    is_pruned: bool = False
    full: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    title: str
    counts: str
    boxes: Mapping[str, Box]
    lines: tuple[Line, ...]
    units: tuple[tuple[str, ...], ...]
    """Ids of actions that are scheduled as one."""

    @property
    def families(self) -> tuple[str, ...]:
        """Whom the colours stand for, in the order they appear."""
        return tuple(dict.fromkeys(box.family for box in self.boxes.values() if box.family))


def scene_of(plan: Plan, *, show_pruned: bool = False) -> Scene:
    """Return what a picture of ``plan`` shows; ``show_pruned`` adds what was left out, and why."""
    return _Builder(plan, show_pruned).scene()


def counts_of(num_actions: int, num_edges: int) -> str:
    """Return ``27 actions, 41 edges``."""
    actions = f"{num_actions} action{'' if num_actions == 1 else 's'}"
    return f"{actions}, {num_edges} edge{'' if num_edges == 1 else 's'}"


def shown_edges(plan: Plan) -> list[PlanEdge]:
    """Return the edges of a Plan as a reader sees them: to read a duplicate is to read what stands in for it.

    Texts are not rewritten when a duplicate goes, so that the edge from its stand-in looks like one for order alone.
    """
    aliases = _aliases(plan)
    if not aliases:
        return list(plan.edges)
    read = {
        (aliases[reference.name], name)
        for name, action in plan.dag.actions.items()
        for reference in action.references
        if reference.kind == "actions" and reference.name in aliases
    }
    return [edge._replace(reads=edge.reads or (edge.source, edge.target) in read) for edge in plan.edges]


def _aliases(plan: Plan) -> dict[str, str]:
    """Return what stands in for each duplicate."""
    into = {pruned.action: pruned.into for pruned in plan.pruned if pruned.into is not None}
    found = {}
    for name in into:
        last = name
        while last in into:
            last = into[last]
        found[name] = last
    return found


def told_counts(plan: Plan) -> str:
    """Return the size of a Plan, and of the Dag before it where that is another."""
    before = counts_of(len(plan.declared.actions), plan.num_declared_edges)
    after = counts_of(len(plan.dag.actions), len(plan.edges))
    return after if before == after else f"{before} -> {after}"


@dataclass(slots=True)
class _Builder:
    plan: Plan
    show_pruned: bool
    boxes: dict[str, Box] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    ids: dict[tuple[BoxKind, str], str] = field(default_factory=dict)

    def scene(self) -> Scene:
        dag, edges = self.plan.dag, shown_edges(self.plan)
        gone: dict[str, Pruned] = {}
        if self.show_pruned:
            gone = {pruned.action: pruned for pruned in self.plan.pruned}
            edges += _edges_of_pruned(self.plan.declared, gone)
        shown = {**dag.actions, **{name: self.plan.declared.actions[name] for name in gone}}
        into: dict[str, list[PlanEdge]] = {name: [] for name in shown}
        for edge in edges:
            into[edge.target].append(edge)
        inputs_read = {name: sorted(_inputs_read(shown[name], into[name])) for name in shown}
        outputs = {name: template.references for name, template in dag.outputs.items()}
        read = {name for names in inputs_read.values() for name in names}
        read |= {reference.name for references in outputs.values() for reference in references}
        for name, declared in dag.inputs.items():
            if name in read:
                about = (f"input {plain(name)}", plain(declared.description))
                self._add(Box("", BoxKind.INPUT, plain(name), "input", full=tuple(filter(None, about))), name)
        for name, action in shown.items():
            self._add(self._action_box(action, len(into[name]), gone.get(name)), name)
        for name in dag.outputs:
            self._add(Box("", BoxKind.OUTPUT, plain(name), "output", full=(f"output {plain(name)}",)), name)
        self._draw_lines(edges, inputs_read, outputs, gone)
        units = tuple(tuple(self.ids[BoxKind.ACTION, name] for name in unit) for unit in self.plan.units)
        return Scene(plain(dag.name), told_counts(self.plan), self.boxes, tuple(self.lines), units)

    def _add(self, box: Box, name: str) -> None:
        box = replace(box, id=f"n{len(self.boxes)}")
        self.ids[box.kind, name] = box.id
        self.boxes[box.id] = box

    def _draw_lines(
        self,
        edges: Iterable[PlanEdge],
        inputs_read: Mapping[str, list[str]],
        outputs: Mapping[str, Iterable[Reference]],
        gone: Mapping[str, Pruned],
    ) -> None:
        ids, aliases = self.ids, _aliases(self.plan)
        for name, inputs in inputs_read.items():
            for given in inputs:
                start, end = ids.get((BoxKind.INPUT, given)), ids[BoxKind.ACTION, name]
                if start is not None:
                    full = f"{plain(name)} reads the input {plain(given)}"
                    self.lines.append(Line(start, end, LineKind.VALUE, is_pruned=name in gone, full=full))
        for edge in edges:
            is_pruned = edge.source in gone or edge.target in gone
            self.lines.append(replace(self._edge_line(edge), is_pruned=is_pruned))
        for name, references in outputs.items():
            sources = {(BoxKind.ACTION, aliases.get(r.name, r.name)) for r in references if r.kind == "actions"}
            sources |= {(BoxKind.INPUT, r.name) for r in references if r.kind == "inputs"}
            # What never runs has no box, unless what was pruned is shown.
            for source in sorted(sources & ids.keys()):
                full = f"the output {plain(name)} is made of {plain(source[1])}"
                target = ids[BoxKind.OUTPUT, name]
                is_pruned = source[1] in gone and source[0] is BoxKind.ACTION
                self.lines.append(Line(ids[source], target, LineKind.VALUE, is_pruned=is_pruned, full=full))
        for pruned in gone.values():
            if pruned.into is not None:
                start, end = ids[BoxKind.ACTION, pruned.action], ids[BoxKind.ACTION, aliases[pruned.action]]
                full = f"{plain(aliases[pruned.action])} stands in for {plain(pruned.action)}"
                self.lines.append(Line(start, end, LineKind.SAME, is_pruned=True, full=full))

    def _edge_line(self, edge: PlanEdge) -> Line:
        condition = plain(edge.guard.source) if edge.guard else ""
        verb = "reads" if edge.reads else "waits for"
        full = f"{plain(edge.target)} {verb} {plain(edge.source)}"
        full += ", from its first token on" if edge.stream else ""
        full += f", if {condition}" if condition else ""
        source, target = self.ids[BoxKind.ACTION, edge.source], self.ids[BoxKind.ACTION, edge.target]
        kind = LineKind.READS if edge.reads else LineKind.ORDER
        return Line(source, target, kind, condition, edge.stream, full=full)

    def _action_box(self, action: Action, num_edges: int, pruned: Pruned | None) -> Box:
        condition = plain(action.guard.source) if action.guard else ""
        notes = tuple(notes_of(self.plan.declared, action, num_edges))
        family = f"agent {plain(action.agent)}" if action.agent is not None else action.type.value
        does = does_of(self.plan.declared, action.call)
        full = [f"{plain(action.name)} ({action.type.value})", does]
        full += [f"if {condition}"] if condition else []
        full += [f"pruned: {plain(pruned.reason)}"] if pruned else notes
        if pruned:
            notes = (f"pruned: {pruned.cause.value.replace('_', ' ')}",)
        return Box(
            id="",
            kind=BoxKind.ACTION,
            name=plain(action.name),
            does=does,
            condition=condition,
            notes=notes,
            family="" if pruned else family,
            is_nested=isinstance(action.call, DagCall),
            is_human=isinstance(action.call, HumanCall),
            is_pruned=pruned is not None,
            full=tuple(filter(None, full)),
        )


def _edges_of_pruned(declared: Dag, gone: Mapping[str, Pruned]) -> list[PlanEdge]:
    """Return the declared edges that went with an action."""
    edges = (edge for incoming in edges_of(declared).values() for edge in incoming)
    return [edge for edge in edges if edge.source in gone or edge.target in gone]


def _inputs_read(action: Action, edges: Iterable[PlanEdge]) -> set[str]:
    references = set(action.references)
    for edge in edges:
        if edge.guard is not None:
            references |= edge.guard.references
    return {reference.name for reference in references if reference.kind == "inputs"}
