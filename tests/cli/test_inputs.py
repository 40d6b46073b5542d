"""Inputs from the command line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from agentrt.cli.inputs import given_inputs, read_input_file
from agentrt.errors import InputError


def test_a_value_may_hold_equals_signs_and_be_empty() -> None:
    """Only the first ``=`` separates; an empty text is a text."""
    assert given_inputs(["q=a=b=c", "empty="], None) == {"q": "a=b=c", "empty": ""}


@pytest.mark.parametrize("pair", ["question", "=value", " =value"])
def test_a_pair_without_a_name_or_value_is_refused(pair: str) -> None:
    """The message shows what was given and how to write it."""
    with pytest.raises(InputError, match=r"expected name=value"):
        given_inputs([pair], None)


def test_a_name_given_twice_is_refused() -> None:
    """Neither value wins in silence."""
    with pytest.raises(InputError, match=r"--input q is given twice: 'a' and 'b'"):
        given_inputs(["q=a", "q=b"], None)


@pytest.mark.parametrize(
    "text", ['{"q": "x", "n": [1, 2.5, null]}', "q: x\nn: [1, 2.5, null]\n", "{q: x, n: [1, 2.5, null]}"]
)
def test_json_and_yaml_files_give_the_same(tmp_path: Path, text: str) -> None:
    """A mapping in JSON, in YAML and in YAML's flow form."""
    path = tmp_path / "inputs"
    path.write_text(text)
    assert read_input_file(str(path)) == {"q": "x", "n": [1, 2.5, None]}


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    """What stands nearer to the call is what counts."""
    path = tmp_path / "inputs.yaml"
    path.write_text("q: file\nn: 1\n")
    assert given_inputs(["q=line"], str(path)) == {"q": "line", "n": 1}


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--input-file -`` takes what is piped in."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"q": "piped"}')))
    assert read_input_file("-") == {"q": "piped"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"[1, 2]", "expected a mapping of input names to values, got a list"),
        (b"just text", "got a text"),
        (b'{"a": 1,,}', "this is not JSON: .*line 1 column"),
        (b"a: 1\na: 2\n", r"inputs:2:1: the key 'a' stands twice"),
        (b"a: [1\n", r"inputs:2:1: this is not YAML"),
        (b"a: !!python/object/apply:os.system ['true']\n", "the tag"),
    ],
)
def test_a_malformed_file_is_one_clear_error(tmp_path: Path, data: bytes, message: str) -> None:
    """Each way a file can be wrong names the file and the cause; no tag is ever constructed."""
    path = tmp_path / "inputs"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read_input_file(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    """The error says which file and why."""
    with pytest.raises(InputError, match=r"--input-file nowhere.json: No such file"):
        read_input_file("nowhere.json")
