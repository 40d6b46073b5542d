"""How fast the embedded engine is on the default model, computed by torch in float32: decoding, time to first token, and
what a step costs beyond the model.

    python benchmarks/scripts/engine.py [--repeat 7] [--threads 2] [--tokens 48]

Decode: tokens a second of 1 and of 8 concurrent streams, all of them together, counted from when each has its first token
until the first of them ends. TTFT: from the call to the first token of an idle engine, for a prompt of 512 random tokens.
Overhead: a step of the engine less the model's own part of it, in microseconds: scheduling, tensors, log-softmax,
choosing, text. The cases take turns, after a warm-up. ``best`` is of the fastest turn, ``median`` and ``worst`` of all: on
a machine that others use too the fastest says more of the program, the median more of the machine. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from agentrt.config import RuntimeConfig
from agentrt.models.catalog import resolve

if TYPE_CHECKING:
    import torch

    from agentrt.inference.async_engine import AsyncEngine
    from agentrt.inference.engine import Engine
    from agentrt.inference.forward import ForwardBatch, ForwardModel, KVTensors
    from agentrt.inference.weights import LoadedModel

MODEL = "smollm2-135m"
NUM_PROMPT_TOKENS = 64
NUM_LONG_PROMPT_TOKENS = 512


class TimedModel:
    """Another model, and the seconds spent in it."""

    def __init__(self, model: ForwardModel) -> None:
        self.spent_s = 0.0
        self._model = model

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        began = time.perf_counter()
        logits = self._model.forward(batch, kv)
        self.spent_s += time.perf_counter() - began
        return logits


class Prompts:
    """Random tokens, never the same twice, so that no prompt finds another one's blocks."""

    def __init__(self, vocab_size: int) -> None:
        self._random = random.Random(0)
        self._vocab_size = vocab_size

    def next(self, num_tokens: int) -> list[int]:
        return [self._random.randrange(100, self._vocab_size) for _ in range(num_tokens)]


async def measure_decode(engine: AsyncEngine, prompts: Prompts, num_streams: int, num_tokens: int) -> float:
    """Return tokens a second of all streams together."""
    from agentrt.inference.sampling_params import SamplingParams

    times: list[list[float]] = []

    async def read(prompt: list[int]) -> None:
        arrivals: list[float] = []
        async with engine.stream(prompt, SamplingParams(max_tokens=num_tokens)) as outputs:
            async for _ in outputs:
                arrivals.append(time.perf_counter())
        times.append(arrivals)

    async with anyio.create_task_group() as tasks:
        for _ in range(num_streams):
            tasks.start_soon(read, prompts.next(NUM_PROMPT_TOKENS))
    began, ended = max(arrivals[0] for arrivals in times), min(arrivals[-1] for arrivals in times)
    count = sum(began < arrival <= ended for arrivals in times for arrival in arrivals)
    # A stream whose model ends its answer at once leaves nothing to measure by.
    return count / (ended - began) if ended > began else math.nan


async def measure_ttft(engine: AsyncEngine, prompts: Prompts) -> float:
    """Return milliseconds to the first token."""
    from agentrt.inference.sampling_params import SamplingParams

    prompt = prompts.next(NUM_LONG_PROMPT_TOKENS)
    began = time.perf_counter()
    async with engine.stream(prompt, SamplingParams(max_tokens=1)) as outputs:
        await anext(outputs)
        return (time.perf_counter() - began) * 1e3


def measure_overhead(
    engine: Engine, model: TimedModel, prompts: Prompts, num_streams: int, temperature: float
) -> float:
    """Return the median, over decode steps, of microseconds that a step spends outside the model."""
    from agentrt.inference.sampling_params import SamplingParams

    sampling = SamplingParams(max_tokens=24, temperature=temperature, top_p=0.95, seed=1)
    for _ in range(num_streams):
        engine.add_request(prompts.next(8), sampling)
    engine.step()
    overheads = []
    while engine.stats().num_running == num_streams:
        model.spent_s, began = 0.0, time.perf_counter()
        engine.step()
        overheads.append((time.perf_counter() - began - model.spent_s) * 1e6)
    while engine.has_work:
        engine.step()
    return statistics.median(overheads)


def summary(values: list[float], *, higher_is_better: bool) -> dict[str, float]:
    ordered = sorted((value for value in values if not math.isnan(value)), reverse=higher_is_better)
    return {
        "best": round(ordered[0], 1),
        "median": round(statistics.median(ordered), 1),
        "worst": round(ordered[-1], 1),
    }


async def benchmark(loaded: LoadedModel, threads: int, repeat: int, num_tokens: int) -> dict[str, dict[str, float]]:
    from agentrt.inference.async_engine import AsyncEngine
    from agentrt.inference.config import EngineConfig
    from agentrt.inference.engine import Engine

    config = EngineConfig(num_threads=threads)
    served = AsyncEngine(Engine(loaded.model, loaded.tokenizer, config))
    timed = TimedModel(loaded.model)
    stepped = Engine(timed, loaded.tokenizer, config)  # type: ignore[arg-type]
    prompts = Prompts(loaded.tokenizer.vocab_size)

    async def overhead(num_streams: int, temperature: float) -> float:
        return measure_overhead(stepped, timed, prompts, num_streams, temperature)

    cases: dict[str, tuple[Callable[[], Awaitable[float]], bool]] = {
        "decode, 1 stream, tokens/s": (lambda: measure_decode(served, prompts, 1, num_tokens), True),
        "decode, 8 streams, tokens/s": (lambda: measure_decode(served, prompts, 8, num_tokens), True),
        "TTFT, 512 tokens, ms": (lambda: measure_ttft(served, prompts), False),
        "overhead, 1 greedy stream, us/step": (lambda: overhead(1, 0.0), False),
        "overhead, 8 greedy streams, us/step": (lambda: overhead(8, 0.0), False),
        "overhead, 8 sampled streams, us/step": (lambda: overhead(8, 0.8), False),
    }
    values: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(repeat + 1):
        for name, (run, _) in cases.items():
            value = await run()
            if turn:
                values[name].append(value)
    await served.aclose()
    results = {}
    for name, (_, higher_is_better) in cases.items():
        results[name] = summary(values[name], higher_is_better=higher_is_better)
        print(name, results[name])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the embedded model sets it, before torch is loaded
    import torch

    from agentrt.inference.weights import load_model

    torch.set_num_threads(arguments.threads)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()
    capability = torch.backends.cpu.get_cpu_capability()
    machine = f"{platform.platform()}, {os.cpu_count()} cores, {capability}"
    print(f"python {sys.version.split()[0]}, torch {torch.__version__}, {machine}, commit {commit}")
    print(f"load average before: {os.getloadavg()[0]:.1f}; {MODEL}, float32, {arguments.threads} threads")
    loaded = load_model(resolve(MODEL, RuntimeConfig.from_env()).fetch(), dtype=torch.float32)
    results = anyio.run(benchmark, loaded, arguments.threads, arguments.repeat, arguments.tokens)
    print(
        json.dumps(
            {
                "benchmark": "engine",
                "commit": commit,
                "model": MODEL,
                "torch": torch.__version__,
                "machine": machine,
                "threads": arguments.threads,
                "cases": results,
            }
        )
    )


if __name__ == "__main__":
    main()
