"""Types along edges: what an action gives against what the next one takes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest

from agentrt.compile.edge_schemas import output_schema_of, schema_of
from agentrt.compile.edge_types import edge_problems
from agentrt.declare.action import Action
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import parse_dag
from agentrt.declare.reference import Reference
from agentrt.errors import Diagnostic
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import tool


@dataclass
class Passage:
    text: str
    score: float


@tool(effects="none")
def search(question: str, limit: int = 5) -> list[Passage]:
    """Find passages."""
    return [Passage(question, float(limit))]


@tool(effects="none")
def count(items: list[str]) -> int:
    """Count."""
    return len(items)


@tool(effects="none")
def best(passages: list[Passage], mode: Literal["short", "long"] = "short") -> Passage | None:
    """Choose one."""
    return passages[0] if mode else None


@tool(effects="none")
def store(record: dict[str, Any], tags: list[str] | None = None, anything: Any = None) -> None:
    """Keep it."""


TOOLS = ToolRegistry([search, count, best, store])
HEAD = """\
name: d
inputs:
  question: {type: string}
  number: {type: integer}
  words: {type: array, items: {type: string}}
outputs: {o: done}
actions:
  find: {uses: tool/search, with: {question: "{{ inputs.question }}"}}
  pick: {uses: tool/best, with: {passages: "{{ actions.find.output }}"}}
  size: {uses: tool/count, with: {items: "{{ inputs.words }}"}}
  say: {prompt: hello}
  choose: {prompt: hello, choices: [short, wide]}
"""


def problems(actions: str, tools: ToolRegistry | None = TOOLS) -> list[Diagnostic]:
    return list(edge_problems(parse_dag(HEAD + actions, file="d.yaml"), tools))


def one(actions: str) -> tuple[str, int | None, str]:
    """Return code, line and message of the only finding."""
    (found,) = problems(actions)
    assert found.place is not None
    return found.code, found.place.line, found.message


@pytest.mark.parametrize(
    ("argument", "tool_name", "reason"),
    [
        ("limit: '{{ inputs.question }}'", "search", "text where a whole number is wanted (inputs.question)"),
        ("question: '{{ actions.find.output }}'", "search", "a list where text is wanted (actions.find.output)"),
        ("items: '{{ actions.say.output }}'", "count", "text where a list is wanted (actions.say.output)"),
        ("limit: 'at most {{ inputs.number }}'", "search", "text where a whole number is wanted"),
        ("question: ' {{ inputs.number }}\n'", "search", "a whole number where text is wanted (inputs.number)"),
        ("limit: '{{ actions.find.output[0].text }}'", "search",
         "text where a whole number is wanted (actions.find.output.0.text)"),
        ("limit: '{{ actions.pick.output.text }}'", "search",
         "text where a whole number is wanted (actions.pick.output.text)"),
        ("limit: '{{ actions.pick.status }}'", "search", "text where a whole number is wanted (actions.pick.status)"),
        ("items: '{{ actions.find.output }}'", "count", "items: a mapping where text is wanted (actions.find.output)"),
        ("passages: '{{ inputs.words }}'", "best", "items: text where a mapping is wanted (inputs.words)"),
        ("mode: '{{ actions.choose.output }}'", "best", None),
        ("mode: '{{ inputs.number }}'", "best", "a whole number where text is wanted (inputs.number)"),
        ("items: [a, '{{ inputs.number }}']", "count", "[1]: a whole number where text is wanted"),
        ("items: ['{{ inputs.question }}', 5]", "count", "[1]: a whole number where text is wanted"),
        ("tags: ['{{ inputs.question }}', 'x{{ inputs.number }}']", "store", None),
        ("record: {a: '{{ inputs.number }}', b: ['{{ inputs.words }}']}", "store", None),
        ("record: ['{{ inputs.number }}']", "store", "a list where a mapping is wanted"),
        ("anything: '{{ inputs.number }}'", "store", None),
        ("limit: '{{ inputs.question | length }}'", "search", None),
        ("unheard_of: '{{ inputs.number }}'", "search", None),
    ],
)  # fmt: skip
def test_an_argument_of_a_tool_must_be_able_to_fit_its_parameter(
    argument: str, tool_name: str, reason: str | None
) -> None:
    """Told at the argument, with what it gets and what is wanted; what may fit is not told."""
    name = argument.partition(":")[0]
    found = problems(f"  done:\n    uses: tool/{tool_name}\n    with:\n      {argument}\n")
    told = [(str(d.code), d.place and d.place.line, d.message) for d in found]
    line = HEAD.count("\n") + 4
    assert told == (
        [] if reason is None else [("DAG038", line, f"argument {name!r} of tool {tool_name!r} gets {reason}")]
    )


def test_a_template_inside_a_value_is_told_at_its_own_line() -> None:
    """Of several templates in one argument the one that does not fit is pointed at."""
    code, line, message = one("""\
  done:
    uses: tool/count
    with:
      items:
        - "{{ inputs.question }}"
        - "{{ inputs.number }}"
""")
    assert (code, line) == ("DAG038", HEAD.count("\n") + 6)
    assert message == "argument 'items' of tool 'count' gets [1]: a whole number where text is wanted"


def test_choices_of_a_model_are_compared_with_those_of_a_tool() -> None:
    """An answer that can only be 'yes' or 'no' is no mode."""
    _, _, message = one("""\
  vote: {prompt: hello, choices: ["yes", "no"]}
  done: {uses: tool/best, with: {passages: [], mode: "{{ actions.vote.output }}"}}
""")
    assert message.endswith("gets one of 'yes', 'no' where one of 'short', 'long' is wanted (actions.vote.output)")


def test_the_usual_way_to_convert_is_hinted_at() -> None:
    """Text for a number and anything for a text have a filter; other mistakes have none."""
    (text,) = problems('  done: {uses: tool/search, with: {question: "{{ inputs.number }}"}}\n')
    assert text.hint == "to write it as text: {{ inputs.number | tojson }}"
    (number,) = problems('  done: {uses: tool/search, with: {question: x, limit: "{{ actions.say.output }}"}}\n')
    assert number.hint == "if it spells a number: {{ actions.say.output | int }}"
    (other,) = problems('  done: {uses: tool/count, with: {items: "{{ actions.say.output }}"}}\n')
    assert other.hint is None


def test_without_tools_nothing_is_said_of_them() -> None:
    """A file can be checked where its tools are not installed."""
    text = '  done: {uses: tool/search, with: {question: "{{ inputs.number }}"}}\n'
    assert len(problems(text)) == 1
    assert problems(text, None) == []


def test_for_each_goes_through_a_list_and_gives_one() -> None:
    """Its items must come as a list, an item has the type of the list's items, and the output is a list again."""
    assert one("  done: {prompt: 'x {{ item }}', for_each: '{{ actions.say.output }}'}\n")[2] == (
        "'for_each' of action 'done' gets text where a list is wanted (actions.say.output)"
    )
    assert (
        one("""\
  done: {uses: tool/search, for_each: "{{ inputs.words }}", with: {question: "{{ item }}", limit: "{{ item }}"}}
""")[2]
        == "argument 'limit' of tool 'search' gets text where a whole number is wanted (item)"
    )
    assert one("""\
  each: {uses: tool/search, for_each: "{{ inputs.words }}", with: {question: x, limit: "{{ item_index }}"}}
  done: {uses: tool/count, with: {items: "{{ actions.each.output }}"}}
""")[2].endswith("gets items: a list where text is wanted (actions.each.output)")
    assert not problems("""\
  each: {prompt: "{{ item }}", for_each: "{{ inputs.words }}"}
  done: {uses: tool/count, with: {items: "{{ actions.each.output }}"}}
""")
    assert one("""\
  each: {prompt: "{{ item }}", for_each: {items: "{{ inputs.words }}", on_error: collect}}
  done: {uses: tool/count, with: {items: "{{ actions.each.output }}"}}
""")[2].endswith("gets items: a mapping where text is wanted (actions.each.output)")


def test_an_output_schema_is_what_an_answer_is() -> None:
    """With output_schema an answer is no text any more, and its parts have types."""
    assert one("""\
  ask: {prompt: x, output_schema: {type: object, properties: {n: {type: integer}}, required: [n]}}
  done: {uses: tool/search, with: {question: "{{ actions.ask.output.n }}"}}
""")[2].endswith("gets a whole number where text is wanted (actions.ask.output.n)")
    assert not problems("""\
  ask: {prompt: x, output_schema: {type: object, properties: {n: {type: integer}}, required: [n]}}
  done: {uses: tool/search, with: {question: x, limit: "{{ actions.ask.output.n }}"}}
""")


def test_a_fallback_widens_what_an_action_gives_and_is_checked_itself() -> None:
    """Only where neither the action nor what stands in for it can fit is there a mistake."""
    ask = """\
  ask: {{prompt: x, fallback: {{value: {value}}}}}
  done: {{uses: tool/count, with: {{items: "{{{{ actions.ask.output }}}}"}}}}
"""
    assert not problems(ask.format(value="[a]"))
    assert one(ask.format(value="5"))[2].endswith(
        "gets text or a whole number where a list is wanted (actions.ask.output)"
    )
    assert (
        one("""\
  done: {prompt: x, fallback: {uses: tool/search, with: {question: "{{ inputs.number }}"}}}
""")[2]
        == "argument 'question' of tool 'search' gets a whole number where text is wanted (inputs.number)"
    )


def test_what_is_written_to_the_state_fits_its_field() -> None:
    """By the field's reducer: the value itself, or an item of it; and what is read has the field's type."""
    state = """\
state:
  notes: {type: array, items: {type: string}, reducer: append}
  last: {type: string}
"""
    text = """\
  a: {prompt: x, writes: {notes: "{{ actions.a.output }}", last: "{{ actions.a.output }}"}}
  b: {prompt: x, writes: {notes: "{{ inputs.number }}"}}
  c: {prompt: x, writes: {last: "{{ inputs.words }}"}}
  done: {uses: tool/search, with: {question: "{{ state.notes }}", limit: "{{ state.last }}"}}
"""
    assert [found.message for found in problems(text + state)] == [
        "state field 'notes', written by action 'b', gets a whole number where text is wanted (inputs.number)",
        "state field 'last', written by action 'c', gets a list where text is wanted (inputs.words)",
        "argument 'question' of tool 'search' gets a list where text is wanted (state.notes)",
        "argument 'limit' of tool 'search' gets text where a whole number is wanted (state.last)",
    ]


def test_a_dag_inside_a_dag_takes_and_gives_what_it_declares() -> None:
    """Its inputs have schemas, and its outputs the types of what they read."""
    inner = parse_dag("""\
name: inner
inputs: {size: {type: integer}}
outputs: {text: "{{ actions.a.output }}", size: "{{ inputs.size }}"}
actions: {a: {prompt: hello}}
""")
    outer = Dag(
        "outer",
        {
            action.name: action
            for action in (
                Action.llm("say", "x"),
                Action.dag("sub", inner, size="{{ actions.say.output }}"),
                Action.tool("find", "search", question="{{ actions.sub.output.size }}"),
                Action.tool("fine", "search", question="{{ actions.sub.output.text }}"),
                Action.tool("all", "search", question="{{ actions.sub.output }}"),
            )
        },
        {},
    )
    found = list(edge_problems(outer, TOOLS))
    assert [problem.message for problem in found] == [
        "argument 'size' of Dag 'inner' gets text where a whole number is wanted (actions.say.output)",
        "argument 'question' of tool 'search' gets a whole number where text is wanted (actions.sub.output.size)",
        "argument 'question' of tool 'search' gets a mapping where text is wanted (actions.sub.output)",
    ]
    assert all(problem.place is not None and problem.place.file == __file__ for problem in found)


def test_functions_are_compared_by_their_annotations() -> None:
    """A parameter against what the function of its name returns, told at the function that takes it."""

    def fetch(question: str) -> list[str]: ...
    def number(fetch: list[str]) -> int: ...
    def wrong(fetch: int, number: int) -> str: ...
    def worse(fetch: list[int]) -> str: ...
    def untyped(fetch, number) -> Any: ...  # type: ignore[no-untyped-def]

    dag = Dag.from_functions("d", [fetch, number, wrong, worse, untyped])
    found = list(edge_problems(dag, None))
    assert [problem.message for problem in found] == [
        "parameter 'fetch' of function 'wrong' gets a list where a whole number is wanted (actions.fetch.output)",
        "parameter 'fetch' of function 'worse' gets items: text where a whole number is wanted (actions.fetch.output)",
    ]
    assert [problem.place.line for problem in found if problem.place] == [
        wrong.__code__.co_firstlineno,
        worse.__code__.co_firstlineno,
    ]


class Animal:
    pass


class Cat(Animal):
    pass


@dataclass
class Wide(Passage):
    language: str


def test_python_types_that_json_has_no_word_for_are_not_in_the_way() -> None:
    """Functions hand each other Python objects; what only its JSON form would keep apart is no mistake."""

    def animal(question: str) -> Animal: ...
    def cat(animal: Cat) -> Decimal: ...
    def half(cat: float) -> date: ...
    def later(half: date) -> Passage: ...
    def wide(later: Wide) -> tuple[int, str]: ...
    def pair(wide: tuple[int, str]) -> float: ...
    def whole(pair: int) -> None: ...

    dag = Dag.from_functions("d", [animal, cat, half, later, wide, pair, whole])
    assert list(edge_problems(dag, None)) == []


def test_an_input_that_is_converted_is_left_to_the_conversion() -> None:
    """pydantic reads dates and numbers out of texts; a plain annotation gets the input as it is."""

    def plain(when: int) -> str: ...
    def converted(when: date, limits: list[int]) -> str: ...

    dag = Dag.from_functions("d", [plain, converted], inputs={"when": str, "limits": list[str]})
    assert [problem.message for problem in edge_problems(dag, None)] == [
        "parameter 'when' of function 'plain' gets text where a whole number is wanted (inputs.when)"
    ]


def test_functions_tools_and_models_meet() -> None:
    """A function's result goes to a tool and an answer to a function, by the same rule."""

    def shout(say: str) -> int: ...
    def listen(say: int) -> str: ...

    dag = Dag.from_functions(
        "d",
        [Action.llm("say", "x"), shout, listen, Action.tool("find", "search", question="{{ actions.shout.output }}")],
    )
    assert [problem.message for problem in edge_problems(dag, TOOLS)] == [
        "parameter 'say' of function 'listen' gets text where a whole number is wanted (actions.say.output)",
        "argument 'question' of tool 'search' gets a whole number where text is wanted (actions.shout.output)",
    ]


def test_what_is_read_is_described() -> None:
    """The schema of a reference is that of the value it leads to; of what is not known it is empty."""
    dag = parse_dag(HEAD + "  done: {prompt: x}\n", file="d.yaml")

    def of(kind: Any, name: str, *path: str) -> Any:
        return schema_of(dag, Reference(kind, name, path), TOOLS)

    assert of("inputs", "words", "3") == {"type": "string"}
    assert of("actions", "find", "output", "0", "score")["type"] == "number"
    assert of("actions", "pick", "output", "score")["type"] == "number"
    assert of("actions", "say", "output", "0") == {"type": "string"}
    assert of("actions", "find", "output", "0", "nothing") == {}
    assert of("actions", "absent", "output") == {} == of("inputs", "absent")
    assert output_schema_of(dag.actions["choose"], TOOLS) == {"type": "string", "enum": ["short", "wide"]}
