"""What a Tool promises: schemas from annotations, arguments checked and converted before the call."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentrt.errors import ToolError, UnknownToolError, UsageError
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import Tool, ToolContext, tool


@dataclass
class Address:
    street: str
    zip_code: str


@tool(effects="none", type="retrieval")
def find_orders(customer: int, since: datetime.date, context: ToolContext, limit: int = 5) -> list[str]:
    """Look orders up."""
    return [f"{customer} {since.year} {limit} {context.base_dir}"]


@tool
async def ship(to: Address, via: Address | None = None) -> str:
    return to.street


def test_a_tool_is_described_by_its_function() -> None:
    """Name, description, parameters, result and declared effects are there without calling it."""
    assert find_orders.name == "find_orders"
    assert find_orders.description == "Look orders up."
    assert (find_orders.effects, find_orders.action_type) == ("none", "retrieval")
    assert find_orders.parameters["required"] == ["customer", "since"]
    assert set(find_orders.parameters["properties"]) == {"customer", "since", "limit"}
    assert find_orders.parameters["additionalProperties"] is False
    assert find_orders.result == {"type": "array", "items": {"type": "string"}}
    assert ship.effects == "write"


def test_arguments_are_converted_to_what_the_annotations_say() -> None:
    """JSON comes in; dates, dataclasses and the context come out."""
    bound = find_orders.bind({"customer": 7, "since": "2026-01-02"}, ToolContext(Path("/x")))
    assert find_orders.function(**bound) == ["7 2026 5 /x"]
    bound = ship.bind({"to": {"street": "Elm", "zip_code": "1"}}, ToolContext())
    assert bound == {"to": Address("Elm", "1")}


@pytest.mark.parametrize(
    ("subject", "arguments", "message"),
    [
        (find_orders, {"since": "2026-01-02"}, "'customer' is a required property"),
        (
            find_orders,
            {"customer": "7", "since": "2026-01-02"},
            "argument 'customer': '7' is not of type 'integer'",
        ),
        (find_orders, {"customer": 7, "since": "soon"}, "argument 'since'"),
        (find_orders, {"customer": 7, "since": "2026-01-02", "lmit": 3}, "'lmit' was unexpected"),
        (ship, {"to": {"street": "Elm", "zip_code": 1}}, "argument 'to.zip_code'"),
    ],
)
def test_an_argument_that_does_not_fit_is_told_with_its_path(
    subject: Tool, arguments: dict[str, Any], message: str
) -> None:
    """The function is never called with what its schema does not allow."""
    with pytest.raises(ToolError) as caught:
        subject.bind(arguments, ToolContext())
    assert message in str(caught.value)
    assert repr(subject.name) in str(caught.value)


def test_what_cannot_be_called_by_name_or_described_is_refused_when_declared() -> None:
    """Mistakes of the declaration are found at import, not at the first call."""

    class Odd:
        pass

    def positional(x: int, /) -> None: ...

    def undescribed(x: Odd) -> None: ...

    with pytest.raises(TypeError, match="cannot be given by name"):
        tool(positional)
    undescribed.__annotations__["x"] = Odd
    with pytest.raises(TypeError, match="has no JSON Schema"):
        tool(undescribed)
    with pytest.raises(ValueError, match="lower-case"):
        tool(name="No Way")(lambda: 1)
    with pytest.raises(ValueError, match="effects is 'maybe'"):
        tool(name="x", effects="maybe")(lambda: 1)  # type: ignore[call-overload]


def test_the_registry_knows_the_nearest_name() -> None:
    """A misspelt tool is answered with the one that was meant; two tools of one name are refused."""
    registry = ToolRegistry([find_orders, ship])
    assert registry["ship"] is ship
    assert sorted(registry) == ["find_orders", "ship"]
    with pytest.raises(UnknownToolError, match="did you mean 'find_orders'"):
        registry["find_order"]
    with pytest.raises(UsageError, match="two tools named 'ship'"):
        ToolRegistry([ship, ship])
