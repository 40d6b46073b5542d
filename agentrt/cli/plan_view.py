"""A Plan for a reader, and for a program: its size, its order, and what was left out and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from agentrt.cli.json_form import to_json
from agentrt.cli.printable import one_line
from agentrt.compile.draw_scene import shown_edges, told_counts
from agentrt.compile.plan import Plan


def plan_lines(plan: Plan) -> Iterator[Text]:
    """Return the lines that ``agentrt plan`` prints."""
    yield Text.assemble((one_line(plan.dag.name), "bold"), f": {told_counts(plan)}")
    yield Text("levels (what is in one can run at the same time)", "cyan")
    for number, level in enumerate(plan.levels, start=1):
        yield Text(f"  {number:>2}  {', '.join(map(one_line, level))}")
    if plan.pruned:
        yield Text("pruned", "cyan")
        for pruned in plan.pruned:
            cause = pruned.cause.value.replace("_", " ")
            yield Text.assemble("  ", (one_line(pruned.action), "bold"), f" ({cause}): {one_line(pruned.reason)}")
    if plan.units:
        yield Text("scheduled as one", "cyan")
        for unit in plan.units:
            yield Text(f"  {' > '.join(map(one_line, unit))}")
    if plan.inner:
        yield Text("Dags inside", "cyan")
        for name, inner in plan.inner.items():
            yield Text.assemble("  ", (one_line(name), "bold"), f": {one_line(inner.dag.name)}, {told_counts(inner)}")


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return what ``agentrt plan --json`` prints."""
    form: dict[str, Any] = to_json(
        {
            "dag": plan.dag.name,
            **_counts(plan),
            "levels": plan.levels,
            "actions": [
                {
                    "name": action.name,
                    "type": action.type,
                    "agent": action.agent,
                    "if": action.guard.source if action.guard else None,
                }
                for action in plan.dag.actions.values()
            ],
            "edges": [
                {
                    "source": edge.source,
                    "target": edge.target,
                    "reads": edge.reads,
                    "if": edge.guard.source if edge.guard else None,
                    "stream": edge.stream,
                }
                for edge in shown_edges(plan)
            ],
            "pruned": [
                {"action": pruned.action, "cause": pruned.cause, "reason": pruned.reason, "into": pruned.into}
                for pruned in plan.pruned
            ],
            "units": plan.units,
            "inner": [{"action": name, "dag": inner.dag.name, **_counts(inner)} for name, inner in plan.inner.items()],
        }
    )
    return form


def _counts(plan: Plan) -> dict[str, int]:
    return {
        "num_declared_actions": len(plan.declared.actions),
        "num_declared_edges": plan.num_declared_edges,
        "num_actions": len(plan.dag.actions),
        "num_edges": len(plan.edges),
    }
