"""From replies to figures. TTFT: from the request to its first text. ITL: between two chunks of text of one stream; a
server that sends several tokens in one chunk has fewer, longer ones, so ``tokens_per_chunk`` stands beside them. TPOT:
from the first chunk to the last, over the tokens between them, which bundling does not change. Milliseconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from benchmarks.peers.reply import Reply

Figures = dict[str, float]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated between the two values around it.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(name: str, seconds: Sequence[float]) -> Figures:
    """Return p50, p99 and max in milliseconds; nothing of nothing."""
    if not seconds:
        return {}
    return {
        f"{name}_p50_ms": percentile(seconds, 50) * 1e3,
        f"{name}_p99_ms": percentile(seconds, 99) * 1e3,
        f"{name}_max_ms": max(seconds) * 1e3,
    }


def gaps(reply: Reply) -> list[float]:
    return [later - earlier for earlier, later in pairwise(reply.arrivals_s)]


def summarise(replies: Sequence[Reply]) -> Figures:
    """Return the figures of complete replies, from the first request to the last text.

    Raises:
        ValueError: there are none.
    """
    num_tokens = sum(reply.num_output_tokens or 0 for reply in replies)
    num_chunks = sum(len(reply.arrivals_s) for reply in replies)
    wall_s = max(reply.arrivals_s[-1] for reply in replies) - min(reply.asked_s for reply in replies)
    tpot = [
        (reply.arrivals_s[-1] - reply.arrivals_s[0]) / (reply.num_output_tokens - 1)
        for reply in replies
        if reply.num_output_tokens is not None and reply.num_output_tokens > 1
    ]
    return {
        "tokens_per_s": num_tokens / wall_s,
        **spread("ttft", [reply.arrivals_s[0] - reply.asked_s for reply in replies]),
        **spread("itl", [gap for reply in replies for gap in gaps(reply)]),
        **({"tpot_mean_ms": statistics.mean(tpot) * 1e3} if tpot else {}),
        "tokens_per_chunk": num_tokens / num_chunks,
        "cached_tokens": float(sum(reply.num_cached_tokens or 0 for reply in replies)),
    }


def summarise_intrusion(streams: Sequence[Reply], long: Reply, hung_up_s: float) -> Figures:
    """Return what a long prompt did to the streams that were decoding when it came, and how long it took itself.

    A gap counts when any of it lies between the long request and its first text. One that was still open when the client
    hung up counts as long as it had become.
    """
    began, ended = long.asked_s, long.arrivals_s[0]
    during: list[float] = []
    before: list[float] = []
    for stream in streams:
        times = (*stream.arrivals_s, hung_up_s)
        for index, (earlier, later) in enumerate(pairwise(times)):
            is_open = index == len(times) - 2
            if later > began and earlier < ended:
                during.append(later - earlier)
            elif later <= began and not is_open:
                before.append(later - earlier)
    num_during = sum(began < arrival <= ended for stream in streams for arrival in stream.arrivals_s)
    return {
        **spread("itl", during),
        **spread("itl_before", before),
        "long_ttft_ms": (ended - began) * 1e3,
        "tokens_per_s": num_during / (ended - began),
    }


def median_figures(runs: Iterable[Mapping[str, float]]) -> Figures:
    """Return the median over repeats of each figure."""
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, value in run.items():
            values.setdefault(name, []).append(value)
    return {name: statistics.median(several) for name, several in values.items()}
