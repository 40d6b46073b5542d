"""Dags out of Python functions: parameters are edges, annotations are schemas, mistakes point into the Python file."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
from typing import Annotated, Any

import pytest

from agentrt.compile.check import check
from agentrt.compile.inputs import bind_inputs
from agentrt.compile.plan import plan
from agentrt.declare.action import Action, ActionOptions, ActionType
from agentrt.declare.agent import Agent
from agentrt.declare.call import FunctionCall, LlmCall
from agentrt.declare.dag import Dag, Input, Slo
from agentrt.declare.dag_file import parse_dag
from agentrt.declare.functions import action
from agentrt.declare.policy import Effects, RetryPolicy
from agentrt.errors import DeclarationError, InputError


async def search(question: str) -> list[str]:
    return [question]


def rank(search: list[str], question: str, limit: int = 3) -> list[str]:
    return search[:limit]


def line_of(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


def test_parameters_are_edges_or_inputs() -> None:
    """What has the name of an action waits for it; all else is an input, optional with a default."""
    dag = Dag.from_functions("find", [search, rank], slo=Slo(p99_s=1))
    assert check(dag) == ()
    assert plan(dag).parents == {"search": (), "rank": ("search",)}
    assert dag.inputs["question"].schema == {"type": "string"}
    assert (dag.inputs["limit"].required, dag.inputs["limit"].default) == (False, 3)
    assert list(dag.outputs) == ["rank"]
    assert bind_inputs(dag, {"question": "q"}) == {"question": "q", "limit": 3}
    with pytest.raises(InputError, match="not of type 'string'"):
        bind_inputs(dag, {"question": 7})
    call = dag.actions["rank"].call
    assert isinstance(call, FunctionCall)
    assert {name: str(reference) for name, reference in call.arguments.items()} == {
        "search": "actions.search.output",
        "question": "inputs.question",
        "limit": "inputs.limit",
    }
    scope = {
        "inputs": {"question": "q", "limit": 1},
        "actions": {"search": {"output": ["a", "b"], "status": "succeeded"}},
    }
    given = {name: reference.look_up(scope) for name, reference in call.arguments.items()}
    assert call.function(**given) == ["a"]


def test_a_function_stays_an_ordinary_function() -> None:
    """Marking it as an action changes neither what it is nor how it is called."""

    @action(
        name="lookup", timeout_s=2, retry=RetryPolicy(attempts=2), effects=Effects.NONE, type=ActionType.RETRIEVAL,
        condition="inputs.question != ''", needs=["other"],
    )  # fmt: skip
    def look_up(question: str) -> str:
        return question * 2

    def other() -> None: ...

    assert look_up("a") == "aa"
    dag = Dag.from_functions("d", [look_up, other])
    made = dag.actions["lookup"]
    assert (made.timeout_s, made.effects, made.type) == (2, Effects.NONE, ActionType.RETRIEVAL)
    assert made.retry == RetryPolicy(attempts=2)
    assert made.dependencies == {"other"}
    assert made.guard is not None
    assert made.guard.source == "inputs.question != ''"
    with pytest.raises(TypeError, match="timeot"):
        action(timeot=1)


def test_functions_prompts_and_tools_mix() -> None:
    """An llm action that names no agent asks the only one there is."""
    dag = Dag.from_functions(
        "mixed",
        [
            search,
            Action.tool("facts", "retrieval", query="{{ inputs.question }}", options=ActionOptions(needs=["search"])),
            Action.llm("answer", "{{ inputs.question }} {{ actions.facts.output }}", choices=["a", "b"], max_tokens=5),
        ],
        agents=[Agent("clerk")],
        outputs={"answer": "answer", "both": "{{ actions.answer.output }}/{{ actions.facts.output }}"},
    )
    assert check(dag) == ()
    call = dag.actions["answer"].call
    assert isinstance(call, LlmCall)
    assert (call.agent, call.choices, call.parameters) == ("clerk", ("a", "b"), {"max_tokens": 5})
    assert dag.outputs["answer"].source == "{{ actions.answer.output }}"
    assert plan(dag).order == ("search", "facts", "answer")
    alone = Dag.from_functions("alone", [Action.llm("answer", "hi")])
    assert list(alone.agents) == ["default"]
    assert parse_dag(alone.to_yaml()) == alone


def test_annotations_become_schemas_and_converters() -> None:
    """Dates and dataclasses arrive as JSON and reach the function as what it asks for."""

    @dataclasses.dataclass
    class Order:
        number: int

    def ship(order: Order, on: datetime.date, tags: Annotated[list[str], "doc"], anything: Any) -> str:
        return f"{order.number} {on.year}"

    ship.__annotations__["order"] = Order
    dag = Dag.from_functions("d", [ship])
    assert bind_inputs(dag, {"order": {"number": 1}, "on": "2026-01-02", "tags": [], "anything": None})
    with pytest.raises(InputError, match="number"):
        bind_inputs(dag, {"order": {}, "on": "2026-01-02", "tags": [], "anything": 1})
    call = dag.actions["ship"].call
    assert isinstance(call, FunctionCall)
    assert call.converters["order"]({"number": 1}) == Order(1)
    assert call.converters["on"]("2026-01-02") == datetime.date(2026, 1, 2)


def test_inputs_may_be_declared() -> None:
    """By an annotation or an Input; a parameter with a default that is not among them keeps it."""
    dag = Dag.from_functions("d", [search, rank], inputs={"question": Input("question", {"type": "string"}, "What?")})
    assert list(dag.inputs) == ["question"]
    call = dag.actions["rank"].call
    assert isinstance(call, FunctionCall)
    assert "limit" not in call.arguments
    assert Dag.from_functions("d", [search], inputs={"question": str}).inputs["question"].schema == {"type": "string"}


def test_every_mistake_is_told_with_file_and_line() -> None:
    """All at once, with the nearest name."""

    def positional(question: str, /) -> None: ...
    def many(*questions: str) -> None: ...
    def misspelt(serch: list[str]) -> None: ...
    def undescribed(thing: Any) -> None: ...

    class Odd: ...

    undescribed.__annotations__["thing"] = Odd
    with pytest.raises(DeclarationError) as caught:
        Dag.from_functions(
            "d",
            [search, positional, many, misspelt, undescribed, search, lambda: 1],
            inputs={"question": str, "thing": Any},
            outputs={"a": "serch", "b": "{{ foo }}"},
        )
    told = {(str(d.code), d.place.line if d.place else None) for d in caught.value.diagnostics}
    assert all(d.place and d.place.file == __file__ for d in caught.value.diagnostics)
    assert ("DAG060", line_of(positional)) in told
    assert ("DAG060", line_of(many)) in told
    assert ("DAG061", line_of(misspelt)) in told
    assert ("DAG060", line_of(undescribed)) in told
    assert ("DAG062", line_of(search)) in told
    assert {"DAG013", "DAG031", "DAG022"} <= {code for code, _ in told}
    assert "did you mean 'search'" in str(caught.value)


def test_one_input_has_one_annotation_and_one_default() -> None:
    """Two functions that disagree about an input are told apart, not merged by chance."""

    def a(x: int) -> int:
        return x

    def b(x: str) -> str:
        return x

    def c(x: int = 3) -> int:
        return x

    with pytest.raises(DeclarationError, match="annotated differently by 'b'"):
        Dag.from_functions("d", [a, b])
    with pytest.raises(DeclarationError, match="another default in 'c'"):
        Dag.from_functions("d", [a, c])


def test_wrong_parameters_of_an_llm_action_are_told_where_it_is_written() -> None:
    """Misspelt sampling parameters, bad values and bad templates point at the line of the call."""
    with pytest.raises(DeclarationError, match="did you mean 'temperature'") as caught:
        Action.llm("a", "hi", temprature=1, top_p=7, choices=["x", "x"])
    assert len(caught.value.diagnostics) == 3
    here = line_of(test_wrong_parameters_of_an_llm_action_are_told_where_it_is_written)
    assert all(d.place and d.place.file == __file__ and d.place.line == here + 3 for d in caught.value.diagnostics)
    with pytest.raises(DeclarationError, match="DAG022"):
        Action.llm("a", "{{ foo }}")
    with pytest.raises(DeclarationError, match="DAG022"):
        Action.tool("a", "x", query="{{ foo }}")
    with pytest.raises(DeclarationError, match="DAG021"):
        Action.tool("a", "x", options=ActionOptions(condition="a = b"))


def test_what_is_no_function_is_told() -> None:
    """A builtin without a signature, and annotations that cannot be read."""

    def broken(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DeclarationError, match="DAG060"):
        Dag.from_functions("d", [broken])
    with pytest.raises(DeclarationError, match="DAG06"):
        Dag.from_functions("d", [dict.fromkeys], inputs={})


def test_a_function_may_be_an_action_of_an_agent() -> None:
    """``@agent.action`` names whose work it is, brings the agent into the Dag, and goes with ``@action``."""
    writer = Agent("writer", "You write.")

    @writer.action
    @action(timeout_s=2)
    def draft(topic: str) -> str:
        return topic

    dag = Dag.from_functions("d", [draft])
    assert (dag.actions["draft"].agent, dag.agents["writer"], dag.actions["draft"].timeout_s) == ("writer", writer, 2)
    assert dag.check() == ()
    assert dag.plan().order == ("draft",)


def test_a_name_for_an_action_and_an_input_is_ambiguous() -> None:
    """A parameter of that name could mean either."""

    def search(x: int) -> int:
        return x

    with pytest.raises(DeclarationError, match="DAG037"):
        Dag.from_functions("d", [search], inputs={"x": int, "search": str})
