"""Percentiles, gaps, and the table with its ratios and goals."""

from __future__ import annotations

import pytest

from benchmarks.peers.figures import median_figures, percentile, summarise, summarise_intrusion
from benchmarks.peers.reply import Reply
from benchmarks.peers.report import OURS, SAME_FILE, Row, markdown


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7.0], 99, 7.0), ([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0], 50, 1.5), ([0.0, 100.0], 99, 99.0)],
)
def test_percentiles_are_interpolated(values: list[float], percent: float, expected: float) -> None:
    """As numpy's default does it, whatever the order."""
    assert percentile(values, percent) == pytest.approx(expected)


def test_there_is_no_percentile_of_nothing() -> None:
    """It is an error, never a zero that looks like a fast server."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_figures_of_two_replies() -> None:
    """Speed counts tokens from the first request to the last text; TPOT counts tokens, ITL chunks."""
    replies = [
        Reply(0.0, (1.0, 2.0, 4.0), num_prompt_tokens=8, num_output_tokens=4),
        Reply(0.0, (3.0, 5.0), num_prompt_tokens=8, num_output_tokens=6),
    ]
    figures = summarise(replies)
    assert figures["tokens_per_s"] == pytest.approx(2.0)
    assert figures["ttft_p50_ms"] == pytest.approx(2_000)
    assert (figures["itl_p50_ms"], figures["itl_max_ms"]) == pytest.approx((2_000, 2_000))
    assert figures["tpot_mean_ms"] == pytest.approx((1_000 + 400) / 2)
    assert figures["tokens_per_chunk"] == pytest.approx(2.0)


def test_a_gap_that_a_long_prompt_overlaps_counts_as_during_it() -> None:
    """
    stream    0 1 2 . . . . 7 8
    long          ask 2.5, text 6.5
    """
    stream = Reply(0.0, (0.0, 1.0, 2.0, 7.0, 8.0), stopped=True)
    long = Reply(2.5, (6.5,), num_prompt_tokens=4_096, num_output_tokens=1)
    figures = summarise_intrusion([stream], long, hung_up_s=8.5)
    assert figures["itl_max_ms"] == figures["itl_p50_ms"] == pytest.approx(5_000)
    assert figures["itl_before_max_ms"] == pytest.approx(1_000)
    assert figures["long_ttft_ms"] == pytest.approx(4_000)


def test_a_stream_that_never_came_back_counts_as_long_as_it_was_silent() -> None:
    """A stall that outlasts the run is not left out."""
    figures = summarise_intrusion([Reply(0.0, (0.0, 1.0), stopped=True)], Reply(2.0, (6.0,)), hung_up_s=7.0)
    assert figures["itl_max_ms"] == pytest.approx(6_000)


def test_repeats_are_summed_up_by_their_medians() -> None:
    """A figure that one repeat lacks is taken of the others."""
    assert median_figures([{"a": 1.0, "b": 5.0}, {"a": 3.0}, {"a": 2.0}]) == {"a": 2.0, "b": 5.0}
    assert median_figures([]) == {}


@pytest.mark.parametrize(
    ("row", "ratio", "met"),
    [
        (Row("speed", "s", 7, higher_is_better=True), 7.0, True),
        (Row("speed", "s", 7, higher_is_better=True), 6.9, False),
        (Row("time", "t", 0.2), 0.2, True),
        (Row("time", "t", 0.2), 0.21, False),
    ],
)
def test_speeds_reach_a_goal_and_times_do_not_pass_it(row: Row, ratio: float, met: bool) -> None:
    """The direction of a goal is the row's own."""
    assert row.is_met(ratio) is met


def test_the_table_puts_the_goal_beside_the_ratio() -> None:
    """agentrt over llama-server, with what was aimed at and whether it was reached."""
    cases = {"W1": {OURS: {"ttft_p50_ms": 30.0}, SAME_FILE: {"ttft_p50_ms": 300.0}}}
    lines = markdown(cases, [OURS, SAME_FILE]).splitlines()
    assert lines[0] == "| case | figure | agentrt | llama-server Q4_1 | agentrt / Q4_1 | goal (to Q4_1) |"
    assert "| W1 | TTFT p50, ms | 30.0 | 300 | 0.1 | <= 0.2x: met |" in lines


def test_a_server_without_figures_has_a_dash() -> None:
    """What was not measured is not made up, and no goal is judged by it."""
    cases = {"W1": {OURS: {"ttft_p50_ms": 30.0}, SAME_FILE: {}}}
    lines = markdown(cases, [OURS, SAME_FILE]).splitlines()
    assert "| W1 | TTFT p50, ms | 30.0 | - | - | <= 0.2x |" in lines
