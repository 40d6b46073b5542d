"""How fast `agentrt serve` is on a processor, beside the servers a user would pick instead, on the same work.

    python -m benchmarks.engine_cpu [--llama-server PATH] [--server FILE.json ...] [--repeat 3] [--markdown]
                                    [--cases W1 "W2 at 8" "W2 at 16" "W2 at 32" W3] [--only NAME ...]

The workloads are described in benchmarks/peers/workloads.py, how to build the peers in benchmarks/peers/README.md. A peer
that is not there is said to be missing. Cases come one after the other; within each, servers take turns, freshly started
and warmed up. Figures are medians over repeats. ``others`` is the CPU that processes other than server and client took, in
CPUs: above about 0.1 the machine was not quiet. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from agentrt.config import RuntimeConfig
from agentrt.inference.gguf_file import GgufFile
from agentrt.inference.tokenizer_gguf import tokenizer_from_gguf
from agentrt.models.catalog import resolve
from benchmarks.peers import processes
from benchmarks.peers.figures import Figures, median_figures
from benchmarks.peers.prompts import PromptSource, docstrings, make_corpus
from benchmarks.peers.report import FASTER_KERNELS, OURS, SAME_FILE, markdown
from benchmarks.peers.servers import (
    Running,
    Server,
    agentrt_server,
    described_server,
    find_program,
    llama_server,
    requantise,
    running,
)
from benchmarks.peers.workloads import Case, crowd, intrusion, one_at_a_time

MODEL = "smollm2-135m"


def find_servers(arguments: argparse.Namespace, model_file: Path, cache_dir: Path) -> tuple[list[Server], list[str]]:
    """Return the servers that are here, and a line about each that is not."""
    servers, missing = [agentrt_server()], []
    program = find_program("llama-server", arguments.llama_server)
    if program is None:
        missing.append(f"llama-server: {arguments.llama_server or 'not on PATH'}; see benchmarks/peers/README.md")
    else:
        servers.append(llama_server(SAME_FILE, program, model_file))
        beside = program.parent / "llama-quantize"
        quantise = find_program("llama-quantize", beside if beside.exists() else None)
        if quantise is None:
            missing.append(f"{FASTER_KERNELS}: needs llama-quantize beside {program} or on PATH")
        else:
            servers.append(llama_server(FASTER_KERNELS, program, requantise(quantise, model_file, cache_dir)))
    servers += [described_server(path) for path in arguments.server]
    if arguments.only:
        missing += [f"{server.name}: left out" for server in servers if server.name not in arguments.only]
        servers = [server for server in servers if server.name in arguments.only]
    return servers, missing


def measure(server: Server, case: Case, prompts: PromptSource, threads: int) -> Figures:
    """Start a server, run a case on it, and return its figures. Raises RuntimeError when it fails or answers amiss."""
    load_before = os.getloadavg()[0]
    with running(server, threads=threads, slots=case.slots, slot_context=case.slot_context) as target:
        return asyncio.run(_measure(target, case, prompts)) | {"load_before": load_before}


async def _measure(target: Running, case: Case, prompts: PromptSource) -> Figures:
    state = await case.warm_up(target, prompts)
    began_s, busy_s = time.perf_counter(), processes.machine_busy_seconds()
    server_s, client_s = processes.cpu_seconds(target.process_id), time.process_time()
    figures = await case.run(target, prompts, state)
    wall_s = time.perf_counter() - began_s
    server_s = processes.cpu_seconds(target.process_id) - server_s
    client_s = time.process_time() - client_s
    busy_s = processes.machine_busy_seconds() - busy_s
    return figures | {
        "server_cpu_s": server_s,
        "client_cpu_s": client_s,
        "others": max(0.0, busy_s - server_s - client_s) / wall_s,
        "peak_mib": processes.peak_mib(target.process_id),
        "pss_mib": processes.proportional_mib(target.process_id),
        "wall_s": wall_s,
    }


def measure_all(
    servers: Sequence[Server], cases: Sequence[Case], corpus: Sequence[int], arguments: argparse.Namespace
) -> list[dict[str, object]]:
    runs: list[dict[str, object]] = []
    for case in cases:
        for repeat in range(arguments.repeat):
            turn = repeat % len(servers)
            for server in (*servers[turn:], *servers[:turn]):
                run: dict[str, object] = {"case": case.name, "server": server.name, "repeat": repeat}
                prompts = PromptSource(corpus, f"{case.name} {repeat} {arguments.seed}")
                try:
                    run["figures"] = {
                        name: round(value, 4)
                        for name, value in measure(server, case, prompts, arguments.threads).items()
                    }
                except (RuntimeError, OSError, ValueError) as error:
                    run["error"] = str(error)
                runs.append(run)
                print(
                    f"{case.name}, repeat {repeat}, {server.name}: {run.get('figures') or run.get('error')}", flush=True
                )
    return runs


def medians(
    runs: Sequence[dict[str, object]], cases: Sequence[Case], servers: Sequence[Server]
) -> dict[str, dict[str, Figures]]:
    results: dict[str, dict[str, Figures]] = {}
    for case in cases:
        results[case.name] = {}
        for server in servers:
            several = [
                figures
                for run in runs
                if (run["case"], run["server"]) == (case.name, server.name)
                and isinstance(figures := run.get("figures"), dict)
            ]
            results[case.name][server.name] = median_figures(several)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--llama-server", type=Path, help="by default that of PATH; llama-quantize is looked for beside it"
    )
    parser.add_argument(
        "--server", type=Path, action="append", default=[], help="JSON file that describes a further one"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help=f"of the servers, as {OURS!r}, {SAME_FILE!r}"
    )
    parser.add_argument("--cases", nargs="+", default=["W1", "W2 at 8", "W2 at 16", "W2 at 32", "W3"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true", help="print the table before the JSON")
    arguments = parser.parse_args()
    known = {case.name: case for case in (one_at_a_time(8), crowd(8), crowd(16), crowd(32), intrusion())}
    if unknown := [name for name in arguments.cases if name not in known]:
        parser.error(f"unknown case {unknown[0]!r}; cases are {', '.join(known)}")
    cases = [known[name] for name in arguments.cases]
    config = RuntimeConfig.from_env()
    model_file = resolve(MODEL, config).fetch()
    servers, missing = find_servers(arguments, model_file, config.cache_dir / "benchmarks")
    with GgufFile(model_file) as file:
        tokenizer = tokenizer_from_gguf(file.fields)
    corpus = make_corpus(lambda text: tokenizer.encode(text, allow_special=False), docstrings())
    facts: dict[str, object] = {
        "benchmark": "engine_cpu",
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
        ).stdout.strip(),
        "python": platform.python_version(),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, {cpu_name()}",
        "model": MODEL,
        "threads": arguments.threads,
        "corpus_tokens": len(corpus),
        "servers": {server.name: {"version": server.say_version(), "command": server.command} for server in servers},
        "missing": missing,
        "load_at_start": os.getloadavg(),
    }
    for name, value in facts.items():
        print(f"{name}: {value}")
    runs = measure_all(servers, cases, corpus, arguments)
    results = medians(runs, cases, servers)
    if arguments.markdown:
        print(markdown(results, [server.name for server in servers]))
    print(json.dumps({**facts, "load_at_end": os.getloadavg(), "cases": results, "runs": runs}))


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
