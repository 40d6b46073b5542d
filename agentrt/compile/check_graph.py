"""Mistakes that only the whole shows: edges, circles, branches that never run, what may be missing, what is of no use."""

from __future__ import annotations

from collections.abc import Iterator

from agentrt.compile.cycle import shortest_cycles
from agentrt.compile.references import check_reference, did_you_mean
from agentrt.compile.subject import Finding, Findings, Subject, writes
from agentrt.declare.action import Action
from agentrt.declare.call import FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.policy import Effects, JoinKind
from agentrt.declare.template_program import Path, Pieces
from agentrt.errors import Diagnostic, Place


def graph_findings(subject: Subject) -> Findings:
    """Go through what is wrong with the Dag as a graph."""
    yield from _edge_findings(subject)
    yield from _cycle_findings(subject)
    yield from _join_findings(subject)
    yield from _output_findings(subject)
    yield from _deadline_findings(subject)
    yield from _unused_findings(subject)


def _edge_findings(subject: Subject) -> Findings:
    seen: set[tuple[str, str]] = set()
    for edge in subject.dag.edges:
        known = True
        for end in (edge.source, edge.target):
            if end not in subject.known_actions:
                known = False
                hint = did_you_mean(end, subject.dag.actions, "actions")
                yield Finding(
                    None,
                    diagnose(Code.UNKNOWN_ACTION, f"an edge names {end!r}, which is no action", edge.place, hint=hint),
                )
        if edge.source == edge.target and known:
            message = f"action {edge.source!r} depends on itself"
            yield Finding(edge.target, diagnose(Code.SELF_REFERENCE, message, edge.place))
        if (edge.source, edge.target) in seen:
            message = f"the edge from {edge.source!r} to {edge.target!r} is stated twice"
            hint = "put both guards into one, with &&"
            yield Finding(None, diagnose(Code.DUPLICATE_EDGE, message, edge.place, hint=hint))
        seen.add((edge.source, edge.target))
        for reference in sorted(edge.guard.references) if edge.guard else ():
            place = edge.guard.places.get(reference, edge.place) if edge.guard else edge.place
            for diagnostic in check_reference(subject, reference, place, reader=subject.dag.actions.get(edge.target)):
                yield Finding(edge.target, diagnostic)
            if (
                reference.kind == "actions"
                and reference.name != edge.source
                and reference.name in subject.known_actions
            ):
                message = f"the guard of an edge reads inputs and its own source, not {reference.name!r}"
                hint = f"write it as 'if' of {edge.target!r}"
                yield Finding(edge.target, diagnose(Code.NOT_ALLOWED, message, place, hint=hint))
        source = subject.dag.actions.get(edge.source)
        if edge.stream and source is not None:
            if not _streams(source):
                message = f"action {edge.source!r} gives nothing before its end: the edge cannot stream"
                hint = "only an answer without 'choices', 'output_schema' and 'for_each' comes piece by piece"
                yield Finding(edge.target, diagnose(Code.NOT_STREAMABLE, message, edge.place, hint=hint))
            else:
                message = f"'stream': in this version {edge.target!r} begins when {edge.source!r} has ended"
                yield Finding(edge.target, diagnose(Code.NOT_YET, message, edge.place))


def _streams(action: Action) -> bool:
    call = action.call
    is_text = isinstance(call, LlmCall) and not call.choices and call.output_schema is None
    return is_text and action.for_each is None


def _cycle_findings(subject: Subject) -> Findings:
    if len(subject.order) == len(subject.dag.actions):
        return
    parents = {name: [edge.source for edge in edges] for name, edges in subject.incoming.items()}
    for cycle in shortest_cycles(parents):
        edges = list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        told = ", ".join(_edge_text(subject, target, source) for target, source in edges)
        place = subject.place_of_edge(*edges[0])
        message = f"these actions wait for each other: {told}"
        yield Finding(cycle[0], diagnose(Code.CYCLE, message, place, hint="take one of these references away"))


def _edge_text(subject: Subject, target: str, source: str) -> str:
    place = subject.place_of_edge(target, source)
    at = f" (line {place.line})" if place and place.line else ""
    return f"{target!r} waits for {source!r}{at}"


def _join_findings(subject: Subject) -> Findings:
    for name, action in subject.dag.actions.items():
        edges, join = subject.incoming[name], action.join
        if join.kind is JoinKind.N_OF and join.num_wanted(len(edges)) > len(edges):
            message = f"action {name!r} wants {join.count} of the actions it waits for, and there are {len(edges)}"
            yield Finding(name, diagnose(Code.JOIN_NEVER_RUNS, message, action.place_of("join")))
        if join.waits_for_all:
            continue
        for edge in edges:
            source = subject.dag.actions[edge.source]
            # One that says itself that it writes is left to end; see the executor.
            if source.effects is None and writes(source, subject.tools):
                message = f"action {edge.source!r} writes, and is cut short when {name!r} begins without it"
                hint = f"write 'effects: write' at {edge.source!r} to let it end, or 'join: any' at {name!r}"
                place = subject.place_of_edge(name, edge.source)
                yield Finding(name, diagnose(Code.UNSAFE_RACE, message, place, hint=hint))


def may_be_missing(subject: Subject) -> frozenset[str]:
    """Return the actions whose output may be null: those that may be skipped, and those that may fail without harm."""
    skippable: set[str] = set()
    for name in subject.order:
        action = subject.dag.actions[name]
        dead = [
            edge.guard is not None or (edge.source in skippable and not subject.dag.actions[edge.source].optional)
            for edge in subject.incoming[name]
        ]
        can_be_skipped = len(dead) - sum(dead) < action.join.num_wanted(len(dead))
        if action.guard is not None or can_be_skipped:
            skippable.add(name)
    # One that races may have been cut off, and one that is optional may have failed.
    racing = {
        edge.source
        for name, edges in subject.incoming.items()
        if not subject.dag.actions[name].join.waits_for_all
        for edge in edges
        if subject.children[edge.source] == (name,)
    }
    optional = {name for name, action in subject.dag.actions.items() if action.optional and action.fallback is None}
    return frozenset(skippable | optional | racing)


def _output_findings(subject: Subject) -> Findings:
    dag = subject.dag
    if not dag.outputs:
        hint = "write, for instance, outputs: {answer: '{{ actions.NAME.output }}'}"
        yield Finding(None, diagnose(Code.NO_OUTPUTS, f"Dag {dag.name!r} has no outputs", dag.place, hint=hint))
    missing = may_be_missing(subject)
    for output, template in dag.outputs.items():
        for reference in sorted(template.references):
            place = template.places.get(reference, dag.place)
            for diagnostic in check_reference(subject, reference, place, reader=None):
                yield Finding(None, diagnostic)
        for program in template.programs.values():
            for piece in program.pieces if isinstance(program, Pieces) else ():
                if isinstance(piece, Path) and piece.keys[0] == "actions" and piece.reference.name in missing:
                    if piece.reference.path[:1] != ("output",):
                        continue
                    place = template.places.get(piece.reference, dag.place)
                    yield Finding(piece.reference.name, _missing(output, piece.reference.name, place))


def _missing(output: str, action: str, place: Place | None) -> Diagnostic:
    message = f"output {output!r} is null when action {action!r} does not come to an output (it may be skipped or fail)"
    hint = f"say what stands for it then, for instance {{{{ actions.{action}.output | default('nothing') }}}}"
    return diagnose(Code.MAY_BE_MISSING, message, place, hint=hint)


def _deadline_findings(subject: Subject) -> Findings:
    """Compare the deadline with the longest path of declared latencies among what runs in any case."""
    deadline_s = subject.dag.slo.deadline_s
    if deadline_s is None:
        return
    longest: dict[str, tuple[float, str | None]] = {}
    for name in subject.order:
        action = subject.dag.actions[name]
        if action.guard is not None or action.optional or action.join.kind is not JoinKind.ALL:
            continue
        sources = [edge.source for edge in subject.incoming[name] if edge.source in longest]
        before = max(((longest[source][0], source) for source in sources), default=None)
        own_s = action.latency.p50_s if action.latency else 0.0
        longest[name] = (own_s + before[0], before[1]) if before else (own_s, None)
    if not longest:
        return
    last = max(longest, key=lambda name: longest[name][0])
    total_s = longest[last][0]
    if total_s <= deadline_s:
        return
    path: list[str] = []
    at: str | None = last
    while at is not None:
        if subject.dag.actions[at].latency is not None:
            path.append(at)
        at = longest[at][1]
    told = " > ".join(reversed(path))
    message = f"the latencies declared (p50) along {told} add up to {total_s:g} s, and the deadline is {deadline_s:g} s"
    yield Finding(last, diagnose(Code.DEADLINE_TOO_SHORT, message, subject.dag.actions[path[0]].place_of("latency")))


def _unused_findings(subject: Subject) -> Findings:
    dag = subject.dag
    read = {reference for action in dag.actions.values() for reference in action.references}
    read |= {reference for template in dag.outputs.values() for reference in template.references}
    read |= {reference for edge in dag.edges if edge.guard for reference in edge.guard.references}
    used_inputs = {reference.name for reference in read if reference.kind == "inputs"}
    for name, declared in dag.inputs.items():
        if name not in used_inputs:
            yield Finding(None, diagnose(Code.UNUSED_INPUT, f"nothing reads the input {name!r}", declared.place))
    used_agents = set(_agents_of(subject))
    for name, agent in dag.agents.items():
        if name not in used_agents:
            yield Finding(None, diagnose(Code.UNUSED_AGENT, f"no action names the agent {name!r}", agent.place))
    used = {reference.name for reference in read if reference.kind == "actions"}
    used |= {edge.source for edges in subject.incoming.values() for edge in edges}
    for name, action in dag.actions.items():
        # A tool or function may be there for what it does; an answer that nobody reads is work for nothing.
        if name not in used and _is_pure(subject, action):
            yield Finding(
                name, diagnose(Code.UNUSED_ACTION, f"nothing reads the output of action {name!r}", action.place)
            )


def _agents_of(subject: Subject) -> Iterator[str]:
    for action in subject.dag.actions.values():
        for call in action.calls:
            if not isinstance(call, HumanCall) and (agent := getattr(call, "agent", None)) is not None:
                yield agent


def _is_pure(subject: Subject, action: Action) -> bool:
    if action.writes or isinstance(action.call, HumanCall):
        return False
    if action.effects is not None:
        return action.effects is Effects.NONE
    if isinstance(action.call, LlmCall):
        return True
    if isinstance(action.call, FunctionCall) or subject.tools is None:
        return False
    if isinstance(action.call, ToolCall):
        return action.call.tool in subject.tools and subject.tools[action.call.tool].effects == Effects.NONE
    return False
