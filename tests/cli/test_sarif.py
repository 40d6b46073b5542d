"""``agentrt check --sarif``: a log that code hosts can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentrt.cli.checked import CheckedFile
from agentrt.cli.sarif import checked_to_sarif
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.explanations import EXPLANATIONS
from agentrt.errors import Place

WriteDag = Callable[..., str]
Cli = Callable[..., Any]


def a(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["error", "warning"]}
MESSAGE = a({"text": TEXT})
# The part of the standard's schema that is used here, and every property of it: what a host reads is all there.
SARIF = a(
    {
        "$schema": {"type": "string", "format": "uri", "pattern": "^https://docs.oasis-open.org/sarif/sarif/v2.1.0/"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": a(
                {
                    "tool": a(
                        {
                            "driver": a(
                                {
                                    "name": {"const": "agentrt"},
                                    "version": TEXT,
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": a(
                                            {
                                                "id": {"enum": [str(code) for code in Code]},
                                                "name": {"type": "string", "pattern": "^([A-Z][a-z0-9]*)+$"},
                                                "shortDescription": MESSAGE,
                                                "fullDescription": MESSAGE,
                                                "help": a({"text": TEXT, "markdown": TEXT}),
                                                "defaultConfiguration": a({"level": LEVEL}),
                                            }
                                        ),
                                    },
                                }
                            )
                        }
                    ),
                    "columnKind": {"const": "unicodeCodePoints"},
                    "results": {
                        "type": "array",
                        "items": a(
                            {
                                "ruleId": TEXT,
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": LEVEL,
                                "message": MESSAGE,
                                "locations": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": a(
                                        {
                                            "physicalLocation": a(
                                                {
                                                    "artifactLocation": a(
                                                        {"uri": TEXT, "uriBaseId": {"const": "%SRCROOT%"}}, "uriBaseId"
                                                    ),
                                                    "region": a(
                                                        {"startLine": NUMBER, "startColumn": NUMBER}, "startColumn"
                                                    ),
                                                },
                                                "region",
                                            )
                                        }
                                    ),
                                },
                            },
                            "locations",
                        ),
                    },
                }
            ),
        },
    }
)
Draft202012Validator.check_schema(SARIF)


def log_of(*diagnosed: tuple[Code, str | None, int | None], folder: str = "/work/repo") -> dict[str, Any]:
    """Return the log of diagnostics given as code, file and line."""
    found = tuple(
        diagnose(code, "it is wrong", Place(file, line) if file is not None else None, hint="mend it")
        for code, file, line in diagnosed
    )
    log = checked_to_sarif([CheckedFile("d.yaml", "d", 1, found)], version="1.2.3", folder=Path(folder))
    Draft202012Validator(SARIF).validate(json.loads(json.dumps(log)))
    return log


def uri_of(file: str, folder: str = "/work/repo") -> dict[str, str]:
    (result,) = log_of((Code.CYCLE, file, 3), folder=folder)["runs"][0]["results"]
    artifact: dict[str, str] = result["locations"][0]["physicalLocation"]["artifactLocation"]
    return artifact


def test_the_log_of_real_files_has_every_part_a_host_reads(cli: Cli, write_dag: WriteDag) -> None:
    """Level, rule, message and the place in the file, for each line that the text form prints; exit code 2 as there."""
    file = write_dag(a="{uses: tool/nope}", outputs="{a: '{{ actions.a.output }}'}")
    ended = cli("check", file, "nowhere.yaml", "--sarif")
    assert (ended.code, ended.err) == (2, "")
    log = json.loads(ended.out)
    Draft202012Validator(SARIF).validate(log)
    run = log["runs"][0]
    told = []
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        region = place.get("region", {})
        where = ":".join(
            str(part)
            for part in (place["artifactLocation"]["uri"], region.get("startLine"), region.get("startColumn"))
            if part is not None
        )
        told.append(f"{where}: {result['level']} {result['ruleId']}: {result['message']['text']}")
    assert told == cli("check", file, "nowhere.yaml").out.splitlines()[:-1]
    assert len(told) == 4


def test_nothing_wrong_is_an_empty_log(cli: Cli, write_dag: WriteDag) -> None:
    """A host closes what it showed before: results are there and empty."""
    file = write_dag(a="{prompt: '{{ inputs.text }} {{ inputs.number }}'}", outputs="{a: '{{ actions.a.output }}'}")
    ended = cli("check", file, "--sarif")
    log = json.loads(ended.out)
    Draft202012Validator(SARIF).validate(log)
    assert (ended.code, log["runs"][0]["results"], log["runs"][0]["tool"]["driver"]["rules"]) == (0, [], [])


def test_the_same_files_give_the_same_bytes(cli: Cli, write_dag: WriteDag) -> None:
    """A log can be compared, cached and committed."""
    file = write_dag(a="{uses: tool/nope, with: {x: '{{ inputs.y }}'}}", outputs="{a: '{{ actions.b.output }}'}")
    assert cli("check", file, "--sarif").out == cli("check", file, "--sarif").out


def test_rules_are_those_found_once_each_in_order_with_their_help() -> None:
    """Several results of a code share its rule, which says what agentrt check --explain says."""
    log = log_of((Code.CYCLE, "b.yaml", 2), (Code.UNUSED_INPUT, "a.yaml", 1), (Code.CYCLE, "a.yaml", 1))
    driver = log["runs"][0]["tool"]["driver"]
    assert [(rule["id"], rule["name"], rule["defaultConfiguration"]["level"]) for rule in driver["rules"]] == [
        ("DAG034", "Cycle", "error"),
        ("DAG051", "UnusedInput", "warning"),
    ]
    assert driver["version"] == "1.2.3"
    explanation = EXPLANATIONS[Code.CYCLE]
    assert driver["rules"][0]["shortDescription"]["text"] == explanation.title
    assert explanation.bad.source in driver["rules"][0]["help"]["markdown"]
    assert "```" not in driver["rules"][0]["help"]["text"]


@pytest.mark.parametrize("code", list(Code))
def test_every_code_makes_a_valid_rule(code: Code) -> None:
    """Whatever is found, the log is valid."""
    assert log_of((code, "a.yaml", 1))["runs"][0]["results"][0]["ruleId"] == code


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a.yaml", "a.yaml"),
        ("dags/./deep/../a.yaml", "dags/a.yaml"),
        ("/work/repo/dags/a.yaml", "dags/a.yaml"),
        ("two words & more #1.yaml", "two%20words%20%26%20more%20%231.yaml"),
        ("menü.yaml", "men%C3%BC.yaml"),
        ("not\udcffutf8.yaml", "not%FFutf8.yaml"),
    ],
)
def test_a_file_is_named_from_the_folder_of_the_command(file: str, uri: str) -> None:
    """As a URI that a host finds in its checkout."""
    assert uri_of(file) == {"uri": uri, "uriBaseId": "%SRCROOT%"}


def test_a_file_elsewhere_is_named_in_full() -> None:
    """It has no name in the checkout."""
    assert uri_of("../other/a.yaml") == {"uri": "file:///work/other/a.yaml"}
    assert uri_of("/etc/a b.yaml") == {"uri": "file:///etc/a%20b.yaml"}


def test_a_diagnostic_without_a_line_or_a_place_has_none() -> None:
    """No region is made up."""
    results = log_of((Code.UNREADABLE_FILE, "a.yaml", None), (Code.CYCLE, None, None))["runs"][0]["results"]
    assert "region" not in results[0]["locations"][0]["physicalLocation"]
    assert "locations" not in results[1]
