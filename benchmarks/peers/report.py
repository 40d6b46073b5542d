"""The table: a row a figure, a column a server, agentrt against each llama-server, and the goal beside it.

The goals are ratios to llama-server with the same file as agentrt reads (Q4_1). ggml has faster kernels for Q4_0 than for
Q4_1 on x86, so that comparison flatters agentrt: the ratio to Q4_0 always stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.figures import Figures

OURS = "agentrt"
SAME_FILE = "llama-server Q4_1"
FASTER_KERNELS = "llama-server Q4_0"
REFERENCES = (SAME_FILE, FASTER_KERNELS)


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and how it is called. ``goal``: the ratio to the same file's that speeds reach and times do not pass."""

    label: str
    figure: str
    goal: float | None = None
    higher_is_better: bool = False

    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        return f"{'>=' if self.higher_is_better else '<='} {self.goal:g}x"

    def is_met(self, ratio: float) -> bool:
        if self.goal is None:
            return True
        return ratio >= self.goal if self.higher_is_better else ratio <= self.goal


def _speed(goal: float | None = None) -> Row:
    return Row("tokens/s", "tokens_per_s", goal, higher_is_better=True)


def _crowd(speed_goal: float, memory_goal: float | None = None) -> tuple[Row, ...]:
    return (
        _speed(speed_goal),
        Row("tokens/s, steady", "steady_tokens_per_s", higher_is_better=True),
        Row("TTFT p50, ms", "ttft_p50_ms"),
        Row("TTFT p99, ms", "ttft_p99_ms", 0.05),
        Row("TTFT p99, steady, ms", "steady_ttft_p99_ms"),
        Row("ITL p50, ms", "itl_p50_ms"),
        Row("ITL p99, ms", "itl_p99_ms", 0.25),
        Row("ITL max, ms", "itl_max_ms"),
        Row("CPU s", "server_cpu_s"),
        Row("peak memory, MiB", "peak_mib", memory_goal),
        Row("PSS, MiB", "pss_mib"),
    )


ROWS: Mapping[str, tuple[Row, ...]] = {
    "W1": (
        _speed(),
        Row("TTFT p50, ms", "ttft_p50_ms", 0.2),
        Row("TTFT p99, ms", "ttft_p99_ms"),
        Row("ITL p50, ms", "itl_p50_ms", 0.5),
        Row("ITL p99, ms", "itl_p99_ms"),
        Row("ITL max, ms", "itl_max_ms"),
        Row("TPOT, ms", "tpot_mean_ms"),
        Row("CPU s", "server_cpu_s"),
        Row("peak memory, MiB", "peak_mib"),
    ),
    "W2 at 8": _crowd(7),
    "W2 at 16": _crowd(10),
    "W2 at 32": _crowd(13, memory_goal=1.0),
    "W3": (
        Row("ITL p50 during, ms", "itl_p50_ms"),
        Row("ITL p99 during, ms", "itl_p99_ms", 0.01),
        Row("ITL max during, ms", "itl_max_ms"),
        Row("ITL p50 before, ms", "itl_before_p50_ms"),
        Row("long TTFT, ms", "long_ttft_ms", 0.2),
        Row("tokens/s during", "tokens_per_s", higher_is_better=True),
        Row("CPU s", "server_cpu_s"),
        Row("peak memory, MiB", "peak_mib"),
    ),
}


def markdown(cases: Mapping[str, Mapping[str, Figures]], servers: Sequence[str]) -> str:
    """Draw the table of medians by case and server. A server without figures has a dash, never a guess."""
    references = [name for name in REFERENCES if name in servers and OURS in servers]
    goals = ["goal (to Q4_1)"] if SAME_FILE in references else []
    header = ["case", "figure", *servers, *(f"agentrt / {name.split()[-1]}" for name in references), *goals]
    lines = [_line(header), _line(["---"] * len(header))]
    for case, results in cases.items():
        for row in ROWS.get(case, (_speed(),)):
            cells = [case, row.label, *(_number(results.get(name, {}).get(row.figure)) for name in servers)]
            for name in references:
                ratio = _ratio(results, name, row.figure)
                cells.append("-" if ratio is None else f"{ratio:.3g}")
            if goals:
                cells.append(_goal(row, _ratio(results, SAME_FILE, row.figure)))
            lines.append(_line(cells))
    return "\n".join(lines)


def _goal(row: Row, ratio: float | None) -> str:
    text = row.goal_text()
    if not text or ratio is None:
        return text
    return f"{text}: {'met' if row.is_met(ratio) else 'missed'}"


def _ratio(results: Mapping[str, Figures], reference: str, figure: str) -> float | None:
    ours, theirs = results.get(OURS, {}).get(figure), results.get(reference, {}).get(figure)
    return ours / theirs if ours is not None and theirs else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
