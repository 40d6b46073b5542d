"""A DAG file: what is read out of it, and what is said of every kind of mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrt.compile.check import check_file
from agentrt.declare.action import ActionType
from agentrt.declare.agent import ModelRef
from agentrt.declare.call import LlmCall, ToolCall
from agentrt.declare.dag import Slo
from agentrt.declare.dag_file import load_dag_file, parse_dag, read_dag
from agentrt.declare.policy import Effects, LatencyPrior, RetryCause, RetryPolicy
from agentrt.errors import DeclarationError
from agentrt.tools.builtin import builtin_tools
from agentrt.tools.registry import ToolRegistry

GOOD = """\
name: triage
description: Sort questions.
inputs:
  question: string
  limit: {type: integer, default: 3, minimum: 1}
outputs:
  answer: "{{ actions.reply.output | default(none) }}"
  facts: ["{{ actions.search.output }}", 1]
slo: {p99: 2s, deadline: 1.5m}
agents:
  clerk:
    model: smollm2-135m
    instructions: |
      Answer briefly.
    with: {temperature: 0.5, stop: ["END"]}
  expert:
    model: {name: big, endpoint: "https://models.example/v1", api_key_env: EXAMPLE_KEY}
actions:
  classify:
    agent: clerk
    prompt: "Which kind? {{ inputs.question }}"
    choices: [billing, other]
    with: {max_tokens: 8}
  search:
    uses: tool/retrieval
    type: retrieval
    effects: none
    with: {corpus: faq.jsonl, query: "{{ inputs.question }}", top_k: 2}
  reply:
    agent: expert
    needs: classify
    if: actions.classify.output == 'billing' && inputs.limit > 1
    timeout: 250ms
    retry: {attempts: 3, on: [timeout, connection], backoff: 100ms, max_backoff: 2s}
    latency: {p50: 200ms, p99: 1s}
    prompt: "Use {{ actions.search.output[0].text }}"
"""


def test_everything_a_file_says_is_in_the_dag() -> None:
    """Each key arrives where it belongs, durations in seconds."""
    dag = parse_dag(GOOD, file="triage.yaml")
    assert (dag.name, dag.description) == ("triage", "Sort questions.")
    assert dag.slo == Slo(p99_s=2.0, deadline_s=90.0)
    assert dag.inputs["question"].required
    assert (dag.inputs["limit"].default, dag.inputs["limit"].required) == (3, False)
    assert dag.agents["clerk"].parameters == {"temperature": 0.5, "stop": ["END"]}
    assert dag.agents["expert"].model == ModelRef("big", "https://models.example/v1", "EXAMPLE_KEY")
    classify, search, reply = dag.actions.values()
    assert isinstance(classify.call, LlmCall)
    assert classify.call.choices == ("billing", "other")
    assert (classify.type, classify.agent) == (ActionType.LLM, "clerk")
    assert isinstance(search.call, ToolCall)
    assert (search.type, search.call.tool, search.effects) == (ActionType.RETRIEVAL, "retrieval", Effects.NONE)
    assert reply.dependencies == {"classify", "search"}
    assert reply.timeout_s == 0.25
    assert reply.retry == RetryPolicy(3, frozenset({RetryCause.TIMEOUT, RetryCause.CONNECTION}), 0.1, 2.0)
    assert reply.latency == LatencyPrior(0.2, 1.0)
    assert reply.place is not None
    assert (reply.place.file, reply.place.line, reply.place.column) == ("triage.yaml", 29, 3)


def test_writing_a_dag_and_reading_it_again_gives_an_equal_one() -> None:
    """The round trip keeps the meaning."""
    dag = parse_dag(GOOD)
    assert parse_dag(dag.to_yaml()) == dag


def test_a_file_without_agents_has_a_default_one() -> None:
    """The smallest useful file needs no agent."""
    dag = parse_dag("name: d\noutputs: {a: '{{ actions.x.output }}'}\nactions: {x: {prompt: hi}}")
    assert list(dag.agents) == ["default"]
    assert parse_dag(dag.to_yaml()) == dag


# Each mistake: what is put in place of what, the code, the line it stands on, and a part of the message or hint.
MISTAKES = [
    ("name: triage", "nmae: triage", "DAG010", 1, "did you mean 'name'"),
    ("name: triage\n", "", "DAG011", 1, "the key 'name' is missing"),
    ("name: triage", "name: [triage]", "DAG012", 1, "expected a text"),
    ("name: triage", "name: 7", "DAG012", 1, "put it in quotes"),
    ("question: string", "question: strin", "DAG015", 4, "did you mean 'string'"),
    ("question: string", "my-question: string", "DAG013", 4, "my_question"),
    ("question: string", "in: string", "DAG013", 4, "choose another"),
    ("question: string", "question: {type: string}\n  question: string", "DAG005", 5, "stands twice; first on line 4"),
    ("minimum: 1", "minimun: 1", "DAG017", 5, "did you mean 'minimum'"),
    ("minimum: 1", "$ref: 'http://x/y'", "DAG017", 5, "'$ref'"),
    ("minimum: 1", "minimum: a", "DAG017", 5, "no JSON Schema"),
    ("default: 3", "default: x", "DAG018", 5, "does not fit"),
    ("p99: 2s", "p99: 2", "DAG014", 9, "write 2s"),
    ("p99: 2s", "p99: two", "DAG014", 9, "250ms"),
    ("p99: 2s", "p99: 2h", "DAG015", 9, "longer than 'deadline'"),
    ("p99: 2s", "p98: 2s", "DAG010", 9, "did you mean 'p99'"),
    ("model: smollm2-135m", "modle: smollm2-135m", "DAG010", 12, "did you mean 'model'"),
    ("temperature: 0.5", "temprature: 0.5", "DAG010", 15, "did you mean 'temperature'"),
    ("temperature: 0.5", "temperature: hot", "DAG015", 15, "expected a number"),
    ("temperature: 0.5", "temperature: .nan", "DAG015", 15, "expected a number"),
    ("api_key_env: EXAMPLE_KEY", "api_key: sk-123", "DAG019", 17, "holds a secret"),
    ("model: smollm2-135m", "api_key: sk-123", "DAG019", 12, "api_key_env"),
    ("minimum: 1", "pattern: '('", "DAG017", 5, "RE2"),
    ('"https://models.example/v1"', '"https://me:pw@models.example/v1"', "DAG019", 17, "user name or password"),
    ('"https://models.example/v1"', '"ftp://models.example/v1"', "DAG015", 17, "http:// or https://"),
    ('endpoint: "https://models.example/v1", ', "", "DAG016", 17, "no effect without 'endpoint'"),
    ("agent: clerk\n    prompt", "prompt", "DAG036", 20, "clerk | expert"),
    ("agent: clerk\n    prompt", "agent: clark\n    prompt", "DAG035", 20, "did you mean 'clerk'"),
    (
        '{{ inputs.question }}"\n    choices',
        '{{ inputs.qestion }}"\n    choices',
        "DAG030",
        21,
        "did you mean 'question'",
    ),
    (
        '{{ inputs.question }}"\n    choices',
        '{{ input.question }}"\n    choices',
        "DAG022",
        21,
        "did you mean 'inputs'",
    ),
    ('{{ inputs.question }}"\n    choices', '{{ inputs.question }"\n    choices', "DAG020", 21, ""),
    ("choices: [billing, other]", "choices: []", "DAG015", 22, "no choices"),
    ("choices: [billing, other]", "choices: [billing, billing]", "DAG015", 22, "stands twice"),
    ("choices: [billing, other]", "choices: [billing, 1]", "DAG012", 22, "put it in quotes"),
    ("max_tokens: 8", "max_tokens: 0", "DAG015", 23, "whole number from 1"),
    ("max_tokens: 8", "max_tokens: true", "DAG015", 23, "whole number from 1"),
    ("uses: tool/retrieval", "uses: tool/retreival", "DAG040", 25, "did you mean 'retrieval'"),
    ("uses: tool/retrieval", "uses: retrieval", "DAG015", 25, "did you mean 'tool/retrieval'"),
    ("uses: tool/retrieval", "uses: tool/retrieval\n    prompt: hi", "DAG016", 26, "make two actions of it"),
    ("uses: tool/retrieval", "timeout: 1s", "DAG011", 24, "what it does"),
    ("type: retrieval", "type: retrival", "DAG015", 26, "did you mean 'retrieval'"),
    ("effects: none", "effects: nothing", "DAG015", 27, "expected one of none"),
    ("top_k: 2", "top_k: two", "DAG043", 28, "top_k"),
    ("top_k: 2", "topk: 2", "DAG041", 28, "did you mean 'top_k'"),
    ("corpus: faq.jsonl, ", "", "DAG042", 24, "'corpus'"),
    ("needs: classify", "needs: clasify", "DAG031", 31, "did you mean 'classify'"),
    ("needs: classify", "needs: reply", "DAG033", 31, "depends on itself"),
    ("limit > 1", "limit > ", "DAG021", 32, ""),
    ("actions.classify.output ==", "actions.clasify.output ==", "DAG031", 32, "did you mean 'classify'"),
    ("timeout: 250ms", "timeout: 250", "DAG014", 33, "250s or 250ms"),
    ("timeout: 250ms", "timeout: 10m", "DAG053", 33, "longer than the deadline"),
    ("attempts: 3", "attempts: 0", "DAG015", 34, "from 1 to 100"),
    ("on: [timeout, connection]", "on: [timeouts]", "DAG015", 34, "did you mean 'timeout'"),
    ("p50: 200ms", "p50: 2s", "DAG015", 35, "longer than p99"),
    ("search.output[0].text", "search.outptu", "DAG032", 36, "did you mean 'output'"),
    ("search.output[0].text", "serch.output", "DAG031", 36, "did you mean 'search'"),
    ("search.output[0].text", "search", "DAG024", 36, ""),
    ("{{ actions.reply.output | default", "{{ actions.repyl.output | default", "DAG031", 7, "did you mean 'reply'"),
    (
        '"Which kind? {{ inputs.question }}"',
        '"Which kind? {{ actions.reply.output }}"',
        "DAG034",
        21,
        "wait for each other",
    ),
]


@pytest.mark.parametrize(("before", "after", "code", "line", "says"), MISTAKES)
def test_each_mistake_is_told_with_its_code_line_and_hint(
    tmp_path: Path, before: str, after: str, code: str, line: int, says: str
) -> None:
    """One mistake gives one error, at its line, with what to do about it."""
    assert GOOD.count(before) == 1, "the mistake must be put in exactly one place"
    path = tmp_path / "d.yaml"
    path.write_text(GOOD.replace(before, after))
    _, diagnostics = check_file(path, ToolRegistry(builtin_tools()))
    told = [d for d in diagnostics if d.code == code and d.place is not None and d.place.line == line]
    assert told, "\n".join(map(str, diagnostics))
    assert any(says in str(diagnostic) for diagnostic in told)
    assert str(path) in str(told[0])


def test_the_good_file_has_no_mistakes(tmp_path: Path) -> None:
    """Nothing is reported where nothing is wrong."""
    path = tmp_path / "d.yaml"
    path.write_text(GOOD)
    assert check_file(path, ToolRegistry(builtin_tools()))[1] == ()


def test_many_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Reading goes on after a mistake."""
    text = GOOD
    for before, after in (
        ("question: string", "question: strin"),
        ("p99: 2s", "p99: 2"),
        ("temperature: 0.5", "temperature: -1"),
        ("needs: classify", "needs: clasify"),
        ("limit > 1", "limit > "),
    ):
        text = text.replace(before, after)
    path = tmp_path / "d.yaml"
    path.write_text(text)
    _, diagnostics = check_file(path)
    lines = [d.place.line or 0 for d in diagnostics if d.place]
    assert lines == sorted(lines)
    assert {4, 9, 15, 31, 32} <= set(lines)


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", "DAG008", "empty"),
        (b"# nothing\n", "DAG008", "empty"),
        (b"- a\n- b\n", "DAG012", "expected a mapping"),
        (b"just a text", "DAG012", "expected a mapping"),
        (b"name: \xff\xfe", "DAG003", "0xff at offset 6"),
        (b"name: [1, 2", "DAG004", "not YAML"),
        (b"name: a\n\tx: b", "DAG004", ""),
        (b"---\nname: a\n---\nname: b\n", "DAG006", "one document"),
        (b"name: !!python/object/apply:os.system [ls]", "DAG006", "tag"),
        (b"a: &a [1]\nb: {<<: {c: 1}}", "DAG006", "merge keys"),
        (b"name: &x [*x]", "DAG006", "itself"),
        (b"[" * 10_000, "DAG007", "nested"),
        (b"name: " + b"{a: " * 200 + b"1" + b"}" * 200, "DAG007", "nested"),
        (b"x" * (2**20 + 1), "DAG002", "1,048,577 bytes"),
        (b"name: a\x00b", "DAG004", ""),
    ],
)
def test_what_is_no_dag_file_at_all_is_told_in_one_line(data: bytes, code: str, says: str) -> None:
    """Anything that cannot be read gives its reason, and never another exception."""
    with pytest.raises(DeclarationError) as caught:
        parse_dag(data, file="d.yaml")
    told = [d for d in caught.value.diagnostics if d.code == code]
    assert told, str(caught.value)
    assert says in str(told[0])
    assert "\n" not in str(told[0])


def test_aliases_that_explode_are_refused_before_they_do() -> None:
    """A billion laughs cost nothing: values are counted before they are made."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    reading = read_dag("\n".join(lines))
    assert [d.code for d in reading.diagnostics] == ["DAG002"]


def test_a_file_that_is_not_there_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    """A misspelt path is answered with the file that was meant; a folder is no file."""
    (tmp_path / "triage.yaml").write_text(GOOD)
    with pytest.raises(DeclarationError, match=r"did you mean .*triage\.yaml"):
        load_dag_file(tmp_path / "triag.yaml")
    with pytest.raises(DeclarationError, match="DAG001"):
        load_dag_file(tmp_path)


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("{uses: tool/a, human: 'Really?'}", "DAG016"),
        ("{prompt: hi, join: {}}", "DAG011"),
        ("{prompt: hi, output_schema: {patternProperties: true}}", "DAG017"),
    ],
)
def test_what_says_two_things_or_nothing_is_refused(action: str, code: str) -> None:
    """No key is dropped in silence, and a schema that is none ends in a diagnostic."""
    text = f"name: d\noutputs: {{a: '{{{{ actions.x.output }}}}'}}\nactions: {{x: {action}}}\n"
    assert [d.code for d in read_dag(text).diagnostics] == [code]
