"""Every mistake that is visible in a Dag, found before anything runs, and all of them at once.

Pure, close to linear in actions and references, and exact: what is reported here would go wrong, or could not have an
effect. What the text of a file already shows (unknown keys, malformed durations) is reported by ``declare`` when it is
read. Each ``check_*`` module owns one kind of mistake; this one puts them in order and leaves out what is ignored with a
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from agentrt.compile.check_actions import action_findings, by_place
from agentrt.compile.check_graph import graph_findings, may_be_missing
from agentrt.compile.check_guards import guard_findings
from agentrt.compile.check_state import state_findings
from agentrt.compile.context_fit import ModelFacts, context_problems
from agentrt.compile.edge_types import edge_problems
from agentrt.compile.subject import Finding, Subject
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import read_dag_file
from agentrt.declare.limits import MAX_DIAGNOSTICS
from agentrt.errors import Diagnostic, Severity
from agentrt.tools.registry import ToolRegistry


def check_file(
    path: str | Path, tools: ToolRegistry | None = None, *, models: ModelFacts | None = None
) -> tuple[Dag | None, tuple[Diagnostic, ...]]:
    """Read a DAG file and check it; returns the Dag as far as it could be read and everything that is wrong."""
    reading = read_dag_file(path)
    found = list(reading.diagnostics)
    if reading.dag is not None:
        # In a Dag that was read in part, what seems unused or missing may only be unread.
        found += [
            diagnostic
            for diagnostic in check(reading.dag, tools, models=models, unread_actions=reading.unread_actions)
            if not found or (diagnostic.severity is Severity.ERROR and diagnostic.code != Code.NO_OUTPUTS)
        ]
    return reading.dag, tuple(sorted(found, key=by_place))


def check(
    dag: Dag,
    tools: ToolRegistry | None = None,
    *,
    models: ModelFacts | None = None,
    unread_actions: frozenset[str] = frozenset(),
) -> tuple[Diagnostic, ...]:
    """Return everything wrong with ``dag`` and the Dags in it, up to MAX_DIAGNOSTICS, in the order of the files.

    Without ``tools``, tools are not looked at; without ``models``, the lengths of prompts are not. ``unread_actions``
    are there but could not be read.
    """
    return check_subject(Subject(dag, tools, unread_actions), models)


def check_subject(subject: Subject, models: ModelFacts | None = None) -> tuple[Diagnostic, ...]:
    """Do as ``check`` does, for one who goes on with the edges that were worked out."""
    found: list[Diagnostic] = []
    for each in subject.dag.with_inner():
        subject = subject if each is subject.dag else Subject(each, subject.tools)
        found += islice(_without_ignored(subject, _findings(subject, models)), MAX_DIAGNOSTICS)
    return tuple(sorted(found, key=by_place)[:MAX_DIAGNOSTICS])


def _findings(subject: Subject, models: ModelFacts | None) -> Iterator[Finding]:
    yield from action_findings(subject)
    yield from graph_findings(subject)
    yield from guard_findings(subject, may_be_missing(subject))
    yield from state_findings(subject)
    problems: Iterable[Diagnostic] = edge_problems(subject.dag, subject.tools, schemas=subject.schemas)
    if models is not None:
        problems = chain(problems, context_problems(subject.dag, models))
    for diagnostic in problems:
        yield Finding(None, diagnostic)


def _without_ignored(subject: Subject, findings: Iterable[Finding]) -> Iterator[Diagnostic]:
    """Leave out warnings that the Dag or the action ignores; tell of an ``ignore`` that had nothing to do."""
    used: set[tuple[str | None, str]] = set()
    for action, diagnostic in findings:
        declared = subject.dag.actions.get(action) if action is not None else None
        own = declared.ignore if declared is not None else {}
        is_warning = diagnostic.severity is Severity.WARNING
        if is_warning and diagnostic.code in own:
            used.add((action, diagnostic.code))
        elif is_warning and diagnostic.code in subject.dag.ignore:
            used.add((None, diagnostic.code))
        else:
            yield diagnostic
    if subject.unread:
        return
    for code in subject.dag.ignore:
        if (None, code) not in used:
            message = f"'ignore' names {code}, and there is no such warning in the Dag"
            yield diagnose(Code.IGNORES_NOTHING, message, subject.dag.place, hint="remove it")
    for name, each in subject.dag.actions.items():
        for code in each.ignore:
            if (name, code) not in used:
                message = f"'ignore' of action {name!r} names {code}, and there is no such warning"
                yield diagnose(Code.IGNORES_NOTHING, message, each.place_of("ignore"), hint="remove it")
