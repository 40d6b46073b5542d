"""What the executor costs: CPU microseconds an action, against bare asyncio on the same graphs.

    python benchmarks/scripts/executor.py [--repeat 9]

Cases: a chain of 200 actions that do nothing, a fan-out of 1,000 with a join, 200 concurrent runs of a 5-action chain.
Baseline: ``asyncio.TaskGroup`` with a task an action, on the same graph. The two alternate, after a warm-up; figures are
medians of process CPU time. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentrt.compile.plan import Plan, plan
from agentrt.config import RuntimeConfig
from agentrt.declare.action import Action, ActionType
from agentrt.declare.call import FunctionCall
from agentrt.declare.dag import Dag
from agentrt.declare.reference import Reference
from agentrt.declare.template import ValueTemplate
from agentrt.run.wiring import Runtime

Run = Callable[[], Awaitable[None]]


async def nothing(**_: object) -> int:
    return 1


def dag_of(parents: dict[str, list[str]]) -> Plan:
    """Return a plan whose actions read their parents' outputs and do nothing."""
    actions = {
        name: Action(
            name,
            ActionType.FUNCTION,
            FunctionCall(nothing, {other: Reference("actions", other, ("output",)) for other in reads}),
        )
        for name, reads in parents.items()
    }
    last = list(parents)[-1]
    return plan(Dag("bench", actions, {"last": ValueTemplate.parse(f"{{{{ actions.{last}.output }}}}")}))


async def bare(parents: dict[str, list[str]]) -> None:
    """Run the same graph with asyncio alone: a task an action, counters for what it waits for."""
    waiting = {name: len(reads) for name, reads in parents.items()}
    children: dict[str, list[str]] = {name: [] for name in parents}
    for name, reads in parents.items():
        for other in reads:
            children[other].append(name)
    async with asyncio.TaskGroup() as tasks:

        async def perform(name: str) -> None:
            await nothing()
            for child in children[name]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    tasks.create_task(perform(child))

        for name in [name for name, count in waiting.items() if count == 0]:
            tasks.create_task(perform(name))


def chain(length: int) -> dict[str, list[str]]:
    return {f"a{i}": [f"a{i - 1}"] if i else [] for i in range(length)}


def fan_out(width: int) -> dict[str, list[str]]:
    return {"root": [], **{f"a{i}": ["root"] for i in range(width)}, "join": [f"a{i}" for i in range(width)]}


async def measure(ours: Run, baseline: Run, num_actions: int, repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"ours": [], "baseline": []}
    for turn in range(repeat + 1):
        for name, run in (("ours", ours), ("baseline", baseline)):
            began = time.process_time()
            await run()
            if turn:
                times[name].append((time.process_time() - began) / num_actions * 1e6)
    ours_us, baseline_us = statistics.median(times["ours"]), statistics.median(times["baseline"])
    return {
        "ours_us": round(ours_us, 1),
        "taskgroup_us": round(baseline_us, 1),
        "ratio": round(ours_us / baseline_us, 1),
    }


async def benchmark(repeat: int) -> dict[str, dict[str, float]]:
    results = {}
    for traced in (False, True):
        async with Runtime(RuntimeConfig.from_env(trace=traced)) as runtime:
            label = "traced" if traced else "untraced"
            for name, parents, num_runs in (
                ("chain of 200", chain(200), 1),
                ("fan-out of 1,000", fan_out(1000), 1),
                ("200 runs of a chain of 5", chain(5), 200),
            ):
                planned = dag_of(parents)

                async def ours(planned: Plan = planned, num_runs: int = num_runs) -> None:
                    await asyncio.gather(*(runtime.run(planned) for _ in range(num_runs)))

                async def baseline(parents: dict[str, list[str]] = parents, num_runs: int = num_runs) -> None:
                    await asyncio.gather(*(bare(parents) for _ in range(num_runs)))

                key = f"{name}, {label}"
                results[key] = await measure(ours, baseline, len(parents) * num_runs, repeat)
                print(key, results[key])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()
    print(f"python {sys.version.split()[0]}, {platform.platform()}, commit {commit}")
    results = asyncio.run(benchmark(arguments.repeat))
    print(json.dumps({"benchmark": "executor", "commit": commit, "cases": results}))


if __name__ == "__main__":
    main()
