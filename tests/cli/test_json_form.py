"""What a run printed as JSON must be: valid, whatever a tool returned."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.cli.json_form import result_to_json, to_json
from agentrt.errors import ActionError
from agentrt.run.events import ActionResult, RunResult, RunStatus
from agentrt.run.state import ActionState
from agentrt.trace.token_timing import TokenTiming


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (b"text", "text"),
        (b"\xff\x00", "/wA="),
        ({1, 2}, [1, 2]),
        ((1, (2,)), [1, [2]]),
        ({1: "a", None: "b", "x": "c"}, {"1": "a", "null": "b", "x": "c"}),
        ("half \ud800", "half ?"),
        (Point(1, 2.5), {"x": 1, "y": 2.5}),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (decimal.Decimal("1.10"), "1.10"),
        (PurePosixPath("/a/b"), "/a/b"),
        (ActionState.SKIPPED, "skipped"),
        (Rude(), "<Rude>"),
    ],
)
def test_a_value_without_a_json_form_is_shown_and_not_dropped(value: Any, form: Any) -> None:
    """What JSON has no word for becomes the nearest thing it has; nothing raises."""
    assert to_json(value) == form


def test_a_value_inside_itself_ends() -> None:
    """A list that holds itself is shown once."""
    value: list[Any] = [1]
    value.append(value)
    assert to_json(value) == [1, "[1, [...]]"]


def test_depth_is_bounded() -> None:
    """A thousand levels do not exhaust the stack."""
    value: Any = 1
    for _ in range(1000):
        value = [value]
    json.dumps(to_json(value))


def test_a_very_long_number_is_written_in_hexadecimal() -> None:
    """Python refuses to write such a number in decimal; it must not stop the output."""
    assert to_json(1 << 20_000) == hex(1 << 20_000)


_anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=20,
)


@given(_anything)
def test_whatever_comes_valid_json_goes(value: Any) -> None:
    """Every value gives strict JSON that can be written as UTF-8 and read back the same."""
    form = to_json(value)
    text = json.dumps(form, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode()) == form


def test_the_result_has_every_promised_key() -> None:
    """Scripts rely on these names; they are there for a failed run as well."""
    timing = TokenTiming(num_tokens=2, ttft_s=0.1, itl_mean_s=0.2, itl_p99_s=0.2)
    error = ActionError("b", "it broke")
    result = RunResult(
        run_id="r",
        dag="d",
        status=RunStatus.FAILED,
        outputs={},
        duration_s=1.0,
        actions=(
            ActionResult("a", ActionState.SUCCEEDED, "x", num_attempts=1, started_s=0.0, duration_s=0.5, tokens=timing),
            ActionResult("b", ActionState.FAILED, error=error, num_attempts=3, started_s=0.5, duration_s=0.5),
        ),
        trace_id="t",
        error=error,
        slo_p99_s=2.0,
    )
    form = result_to_json(result)
    assert set(form) >= {
        "run_id", "status", "outputs", "duration_s", "trace_id", "error", "slo_p99_s", "actions",
    }  # fmt: skip
    assert form["error"] == {"type": "ActionError", "message": "action 'b' failed: it broke"}
    assert form["actions"][0] == {
        "name": "a",
        "status": "succeeded",
        "duration_s": 0.5,
        "started_s": 0.0,
        "num_attempts": 1,
        "output": "x",
        "error": None,
        "reason": None,
        "tokens": {"num_tokens": 2, "ttft_s": 0.1, "itl_mean_s": 0.2, "itl_p99_s": 0.2},
    }
    assert form["actions"][1]["error"]["message"] == "action 'b' failed: it broke"
