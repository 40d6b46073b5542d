"""What compiling costs: seconds to read, check, prune and plan, against the least that any such compiler has to do.

    python benchmarks/scripts/compile.py [--repeat 9]

Cases: a file of 30 actions (prompts, choices, guards, tool calls with arguments, retries), read and planned, beside
PyYAML's C loader on the same bytes; a Dag of 10,000 actions and 40,000 edges, checked and planned, beside networkx building
the same graph, testing it for cycles and sorting it. Each pair alternates in one process after a warm-up; figures are
process CPU time. Peak memory is that of a fresh process that makes the Dag and then does the one or the other once. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import networkx
import yaml

from agentrt.compile.check import check
from agentrt.compile.plan import Plan, plan
from agentrt.declare.action import DEFAULT_AGENT, Action, ActionType
from agentrt.declare.agent import Agent
from agentrt.declare.call import LlmCall
from agentrt.declare.dag import Dag, Input
from agentrt.declare.dag_file import load_dag_file
from agentrt.declare.guard import Guard
from agentrt.declare.template import Template, ValueTemplate
from agentrt.declare.yaml_nodes import read_yaml

NUM_ACTIONS = 10_000
NUM_PARENTS = 4
WIDTH = 100
"""How far back an action of the large Dag reads: about the number of actions that could run side by side."""

HEAD = """\
name: thirty
description: A file of thirty actions.
inputs:
  question: string
  limit: {type: integer, default: 3, minimum: 1}
outputs:
  answer: "{{ actions.a29.output | default('none') }}"
slo: {p99: 20s, deadline: 60s}
agents:
  clerk:
    model: smollm2-135m
    instructions: |
      Answer briefly.
    with: {temperature: 0.5, max_tokens: 60}
actions:
"""
CLASSIFY = """\
  a@:
    agent: clerk
    prompt: |
      You have read this about the question:
      {{ <SOURCE> }}
      Question: {{ inputs.question }}
    choices: [billing, shipping, other]
    retry: {attempts: 3, on: [timeout, overloaded], backoff: 200ms, max_backoff: 5s}
    timeout: 20s
"""
SEARCH = """\
  a@:
    uses: tool/retrieval
    with: {corpus: faq.jsonl, query: "{{ <SOURCE> | trim }} {{ inputs.question }}", top_k: "{{ inputs.limit }}"}
    timeout: 500ms
    latency: {p50: 40ms, p99: 150ms}
"""
ANSWER = """\
  a@:
    if: inputs.limit > <NUMBER> && actions.a<CLASS>.output in ['billing', 'other']
    agent: clerk
    prompt: |
      {% for fact in <SOURCE> %}
      - {{ fact.text }}
      {% endfor %}
      Question: {{ inputs.question }}
"""


def file_of_thirty() -> str:
    """Return a DAG file of ten rounds of classify, search and answer, each round reading the one before it."""
    text = HEAD
    for number in range(30):
        source = f"actions.a{number - 1}.output" if number else "inputs.question"
        if number and number % 3 == 0:
            source += " | default('nothing')"  # the answer before it may have been skipped
        block = (CLASSIFY, SEARCH, ANSWER)[number % 3]
        block = block.replace("@", str(number)).replace("<SOURCE>", source)
        text += block.replace("<NUMBER>", str(number)).replace("<CLASS>", str(number - 2))
    return text


def parents_of(number: int) -> list[int]:
    """Return which actions one of the large Dag reads: fixed, spread over the ones just before it."""
    nearest = max(0, number - WIDTH)
    return sorted(
        {nearest + (number * 7 + step * 31) % WIDTH for step in range(NUM_PARENTS)} if number > WIDTH else set()
    )


def large_dag() -> Dag:
    """Return a Dag of NUM_ACTIONS prompts; one in ten has a guard."""
    guards = [Guard.parse(f"inputs.limit > {number}") for number in range(10)]
    actions = {}
    for number in range(NUM_ACTIONS):
        reads = " ".join(f"{{{{ actions.a{other}.output | default('') }}}}" for other in parents_of(number))
        prompt = Template.parse(f"Number {number} reads {reads or '{{ inputs.limit }}'}")
        guard = guards[number // 10 % 10] if number % 10 == 9 else None
        name = f"a{number}"
        actions[name] = Action(name, ActionType.LLM, LlmCall(DEFAULT_AGENT, prompt), guard=guard)
    last = [f"a{number}" for number in range(NUM_ACTIONS - WIDTH, NUM_ACTIONS)]
    outputs = {name: ValueTemplate.parse(f"{{{{ actions.{name}.output | default('') }}}}") for name in last}
    agents = {DEFAULT_AGENT: Agent(DEFAULT_AGENT)}
    return Dag("large", actions, outputs, {"limit": Input("limit", {"type": "integer"})}, agents)


def only_networkx(dependencies: Mapping[str, frozenset[str]]) -> int:
    """Do with networkx what every compiler of Dags has to: build the graph, look for cycles, sort it into levels."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(dependencies)
    graph.add_edges_from((source, name) for name, sources in dependencies.items() for source in sources)
    if not networkx.is_directed_acyclic_graph(graph):
        raise SystemExit("the graph of the benchmark has a cycle")
    return sum(1 for _ in networkx.topological_generations(graph))


def dependencies_of(dag: Dag) -> dict[str, frozenset[str]]:
    return {name: frozenset(action.dependencies) for name, action in dag.actions.items()}


def measure(calls: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Return seconds of CPU time of each call, the calls taking turns; the first turn is the warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            gc.collect()
            began = time.process_time()
            call()
            if turn:
                times[name].append(time.process_time() - began)
    return times


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.99 * len(values)))]


def small_case(repeat: int) -> dict[str, float]:
    text = file_of_thirty()
    data = text.encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thirty.yaml"
        path.write_text(text, encoding="utf-8")

        def compiled() -> Plan:
            return plan(load_dag_file(path))

        times = measure(
            {
                "ours": compiled,
                "yaml": lambda: read_yaml(data, "thirty.yaml"),
                "pyyaml": lambda: yaml.load(data, Loader=yaml.CSafeLoader),
            },
            repeat,
        )
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "ours_ms": round(median["ours"] * 1e3, 1),
        "ours_p99_ms": round(p99(times["ours"]) * 1e3, 1),
        "yaml_ms": round(median["yaml"] * 1e3, 2),
        "yaml_share": round(median["yaml"] / median["ours"], 2),
        "pyyaml_c_load_ms": round(median["pyyaml"] * 1e3, 2),
    }


def large_case(repeat: int) -> dict[str, float]:
    dag = large_dag()
    dependencies = dependencies_of(dag)
    times = measure(
        {
            "check": lambda: check(dag),
            "ours": lambda: plan(dag),
            "networkx": lambda: only_networkx(dependencies),
        },
        repeat,
    )
    median = {name: statistics.median(values) for name, values in times.items()}
    peaks = {work: peak_memory(work) for work in ("nothing", "plan", "networkx")}
    return {
        "num_edges": sum(map(len, dependencies.values())),
        "num_pruned": len(plan(dag).pruned),
        "check_s": round(median["check"], 3),
        "check_and_plan_s": round(median["ours"], 3),
        "networkx_s": round(median["networkx"], 3),
        "ratio": round(median["ours"] / median["networkx"], 1),
        "dag_mb": peaks["nothing"],
        "peak_mb": peaks["plan"],
        "networkx_peak_mb": peaks["networkx"],
    }


def peak_memory(work: str) -> int:
    """Return the megabytes a fresh process held at its peak, Python and the Dag included."""
    command = [sys.executable, __file__, "--work", work]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(work: str) -> None:
    dag = large_dag()
    if work == "plan":
        plan(dag)
    elif work == "networkx":
        only_networkx(dependencies_of(dag))
    # Linux tells kilobytes, macOS bytes.
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--work", choices=["nothing", "plan", "networkx"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        print_peak(arguments.work)
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()
    print(f"python {sys.version.split()[0]}, {platform.platform()}, networkx {networkx.__version__}, commit {commit}")
    cases = {"a file of 30 actions": small_case(arguments.repeat * 20)}
    print(cases["a file of 30 actions"])
    cases["10,000 actions, 40,000 edges"] = large_case(arguments.repeat)
    print(cases["10,000 actions, 40,000 edges"])
    print(json.dumps({"benchmark": "compile", "commit": commit, "cases": cases}))


if __name__ == "__main__":
    main()
