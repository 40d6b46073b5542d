"""The JSON Schema of the file format says what the reader does, in everything that JSON Schema can say."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentrt.declare import parameters
from agentrt.declare.codes import Code
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import read_dag
from agentrt.declare.file_schema import file_schema, file_schema_text
from agentrt.declare.json_schema import schema_problem
from agentrt.declare.yaml_nodes import read_yaml
from agentrt.errors import DeclarationError, Severity
from tests.support.random_dags import dags

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "dags").glob("*.yaml"))
MISTAKES = sorted((ROOT / "tests" / "compile" / "mistakes").glob("*.yaml"))
PAGE = (ROOT / "docs" / "dag-file.md").read_text()
VALIDATOR = Draft202012Validator(file_schema())
FIRST_LINE = "# yaml-language-server: $schema=../agentrt/declare/dag.schema.json"

OF_FORM = {f"DAG{number:03}" for number in range(10, 16)}
"""Keys, kinds of value, names, durations, single values."""
SAYABLE = OF_FORM | {str(code) for code in (Code.CONFLICTING_KEYS, Code.SECRET, Code.CANNOT_BE_IGNORED)}
BEYOND = SAYABLE | {str(code) for code in (Code.BAD_SCHEMA, Code.BAD_DEFAULT)}
"""Codes of what the schema may refuse; all others are of another file, of what a text says, or of YAML."""

NOT_SAYABLE = {"p99_longer_than_the_deadline"}
"""Two values that must agree: JSON Schema compares none with another."""


def document(text: str | bytes) -> Any:
    """Return the values of a DAG file as the reader sees them."""
    return read_yaml(text.encode() if isinstance(text, str) else text, "dag.yaml")[0].plain()


def refusals(value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message:.200}" for error in VALIDATOR.iter_errors(value)]


def expected(path: Path) -> set[str]:
    return set(re.findall(r"DAG\d{3}", path.read_text().partition("\n")[0]))


def readable(path: Path) -> bool:
    try:
        document(path.read_bytes())
    except DeclarationError:
        return False
    return True


def test_it_is_a_json_schema() -> None:
    """Of the draft that it names, with nothing that refers to where nothing is."""
    schema = file_schema()
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema)
    references = set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(schema)))
    assert references
    for reference in references:
        part: Any = schema
        for key in reference.split("/"):
            part = part[key]


def test_the_file_in_the_package_is_the_one_the_code_makes() -> None:
    """``python scripts/dag_schema.py`` writes it anew."""
    assert (ROOT / "agentrt" / "declare" / "dag.schema.json").read_text("utf-8") == file_schema_text()


def test_every_key_is_described() -> None:
    """An editor has something to show for each key of the format."""
    schema = file_schema()
    agent = schema["$defs"]["agent"]["anyOf"][1]
    for part in (schema, agent, schema["$defs"]["action"], schema["$defs"]["parameters"]):
        for key, value in part["properties"].items():
            target = schema["$defs"][value["$ref"].rpartition("/")[2]] if list(value) == ["$ref"] else value
            assert target.get("description"), key


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_fit_and_name_it(path: Path) -> None:
    """What people copy completes and checks in an editor at once."""
    text = path.read_text()
    assert text.partition("\n")[0] == FIRST_LINE
    assert (path.parent / FIRST_LINE.partition("=")[2]).is_file()
    assert refusals(document(text)) == []


def test_the_example_of_the_page_fits() -> None:
    """What docs/dag-file.md shows is right by the schema too."""
    example = re.search(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert example is not None
    assert refusals(document(example[1])) == []


@pytest.mark.parametrize("path", [path for path in MISTAKES if expected(path) & SAYABLE], ids=lambda path: path.stem)
def test_mistakes_of_form_are_refused(path: Path) -> None:
    """What the reader finds wrong in keys, kinds, names and single values, an editor shows while one types."""
    assert bool(refusals(document(path.read_bytes()))) == (path.stem not in NOT_SAYABLE)


@pytest.mark.parametrize(
    "path", [path for path in MISTAKES if not expected(path) & BEYOND and readable(path)], ids=lambda path: path.stem
)
def test_other_mistakes_are_left_to_the_reader(path: Path) -> None:
    """A file whose form is right fits, whatever else is wrong with it."""
    assert refusals(document(path.read_bytes())) == []


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags())
def test_a_dag_that_is_written_fits(dag: Dag) -> None:
    """Whatever names, texts and values it holds."""
    assert refusals(document(dag.to_yaml())) == []


SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 7, -1, 2.5, "", " ", "a", "1s", "0s", "0.5ms", " 2 m ", "any", "n_of", "write", "string",
     "tool/x", "agent/a", "dag/", "llm", "{{ inputs.q }}", "https://x/v1", "https://u:p@x/", "connection"]
)  # fmt: skip
PIECES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(
        st.sampled_from(["value", "prompt", "uses", "p99", "n_of", "items", "attempts", "name", "type", "dag054"]),
        SCALARS,
        max_size=2,
    ),
)
BASE = """
name: base
inputs: {q: string, n: {type: integer, minimum: 1, default: 2, description: d}}
outputs: {o: "{{ actions.ask.output }}"}
slo: {p99: 1s, deadline: 2s}
agents: {a: {model: {name: m, endpoint: "https://x/v1", api_key_env: K}, instructions: i, with: {top_k: 3, stop: [x]}}}
state: {s: {type: array, reducer: append, initial: []}}
actions:
  ask: {prompt: "{{ inputs.q }}", agent: a, choices: [x, y], with: {max_tokens: 3}, retry: {attempts: 2, on: [timeout],
    backoff: 1s}, latency: {p50: 1s, p99: 2s}, if: inputs.n > 1, ignore: {DAG056: why}, cache: off, optional: true}
  use: {uses: tool/x, with: {k: 1}, type: http, needs: [ask], join: {n_of: 1}, effects: none, writes: {s: 1},
    for_each: {items: [1], max_parallel: 2, on_error: skip}, fallback: {value: 1}, timeout: 1s}
  person: {human: ok?, needs: use, fallback: {prompt: p, output_schema: {type: object}}}
edges: [{from: ask, to: person, guard: "true", stream: true}]
"""


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Go through the places of everything in a value."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from paths(part, (*at, key))


BASE_DOCUMENT = document(BASE)
PLACES = list(paths(BASE_DOCUMENT))


def read_codes(value: Any) -> set[str]:
    """Return the codes of what the reader finds wrong with a document, but for what is wrong only between two values."""
    errors = [d for d in read_dag(json.dumps(value)).diagnostics if d.severity is Severity.ERROR]
    return {d.code for d in errors if "is longer than" not in d.message}


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(PLACES), st.one_of(st.none(), PIECES), st.sampled_from(["set", "drop", "add"]))
def test_it_agrees_with_the_reader_about_any_one_change(place: tuple[Any, ...], piece: Any, change: str) -> None:
    """What the reader accepts is never refused, and what the reader finds wrong in the form is."""
    changed = copy.deepcopy(BASE_DOCUMENT)
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    match change:
        case "set":
            parent[place[-1]] = piece
        case "drop":
            del parent[place[-1]]
        case _ if isinstance(parent, dict):
            parent[piece if isinstance(piece, str) else "surplus"] = piece
    codes = read_codes(changed)
    if not codes & BEYOND:
        assert refusals(changed) == []
    elif codes & SAYABLE:
        assert refusals(changed), codes


def test_it_agrees_with_the_reader_about_the_base() -> None:
    """What is changed above is right to begin with."""
    assert read_codes(BASE_DOCUMENT) == set()
    assert refusals(BASE_DOCUMENT) == []


ACTION = file_schema()["$defs"]["action"]["properties"]


@pytest.mark.parametrize(
    ("keys", "schema"),
    [
        (("slo",), file_schema()["properties"]["slo"]["anyOf"][1]),
        (("edges", 0), file_schema()["properties"]["edges"]["items"]),
        (("actions", "use", "join"), ACTION["join"]["anyOf"][1]),
        (("actions", "use", "for_each"), ACTION["for_each"]["anyOf"][1]),
        (("actions", "ask", "retry"), ACTION["retry"]["anyOf"][1]),
        (("actions", "ask", "latency"), ACTION["latency"]),
    ],
)
def test_inner_mappings_have_the_readers_keys(keys: tuple[Any, ...], schema: Any) -> None:
    """A key that the reader learns for an inner mapping cannot be forgotten here: the reader is asked which it knows."""
    changed = copy.deepcopy(BASE_DOCUMENT)
    part = changed
    for key in keys:
        part = part[key]
    part["qqqqqqqq"] = 1
    (hint,) = [d.hint for d in read_dag(json.dumps(changed)).diagnostics if "qqqqqqqq" in d.message]
    assert hint == f"known keys: {', '.join(schema['properties'])}"


@pytest.mark.parametrize("name", parameters.PARAMETERS)
def test_sampling_parameters_have_the_same_ranges(name: str) -> None:
    """Both sides of every bound, and values of every kind."""
    values: list[Any] = [-1, 0, 0.001, 0.5, 1, 1.5, 2, 100, 100.5, 2**31, 2**31 + 1, 2**64 - 1, 2**64, True, None]
    values += ["", "x", [], [""], ["x"], ["x"] * 64, ["x"] * 65, [1], {}]
    schema = file_schema()["$defs"]["parameters"]
    for value in values:
        accepted = Draft202012Validator(schema).is_valid({name: value})
        assert accepted == (not list(parameters.parameter_problems({name: value}))), value


def test_every_word_of_json_schema_may_be_used() -> None:
    """An input may hold whatever word the reader knows, and none that it refuses."""
    words = {*Draft202012Validator.VALIDATORS, "title", "default", "examples", "$defs", "$comment", "deprecated"}
    known = set(file_schema()["properties"]["inputs"]["additionalProperties"]["anyOf"][1]["propertyNames"]["enum"])
    refused = {word for word in words if re.search("no word|not used", schema_problem({word: {}}) or "")}
    assert words - refused <= known
    assert not refused & known
