"""docs/dag-file.md and docs/diagnostics.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from agentrt.compile.check import check
from agentrt.declare import template_filters
from agentrt.declare.action import ActionType
from agentrt.declare.action_fields import ACTION_KEYS
from agentrt.declare.agent_fields import AGENT_KEYS, MODEL_KEYS
from agentrt.declare.call_fields import TOOL_TYPES
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import DAG_KEYS, parse_dag
from agentrt.declare.guard_syntax import FUNCTIONS, MACROS
from agentrt.declare.parameters import PARAMETERS
from agentrt.declare.policy import Effects, RetryCause
from agentrt.tools.builtin import builtin_tools
from agentrt.tools.registry import ToolRegistry

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "dag-file.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def named(heading: str) -> set[str]:
    """Return the names in backticks of the paragraph that begins with ``heading``."""
    paragraph = PAGE[PAGE.index(f"{heading}: ") :].split(". And")[0].split("\n\n")[0].split(".\n")[0]
    return set(re.findall(r"`([^`]+)`", paragraph))


def test_the_example_is_a_dag_without_mistakes() -> None:
    """What the page shows can be copied: it loads, is checked without a word, and survives a round trip."""
    dag = parse_dag(blocks("yaml")[0])
    assert check(dag, ToolRegistry(builtin_tools())) == ()
    assert parse_dag(dag.to_yaml()) == dag


def test_the_example_shows_every_key() -> None:
    """Nothing a file can hold is missing from the page."""
    for key in (*DAG_KEYS, *AGENT_KEYS, *MODEL_KEYS, *ACTION_KEYS, *PARAMETERS, *Effects, *RetryCause, *TOOL_TYPES):
        assert re.search(rf"`[^`]*\b{key}\b[^`]*`|^ *{key}:", PAGE, re.MULTILINE), key
    assert ActionType.FUNCTION not in TOOL_TYPES


def test_the_lists_of_filters_tests_methods_and_functions_are_complete() -> None:
    """The page names exactly what a template and a guard can use."""
    assert named("Filters") == set(template_filters.FILTERS)
    assert named("Tests") == {name for name in template_filters.TESTS if name.isalpha()}
    assert named("Methods") == set(template_filters.METHODS)
    assert named("Functions") >= set(FUNCTIONS)
    assert set(MACROS) <= set(re.findall(r"`([^`]+)`", PAGE[PAGE.index("Over lists:") :].split("\n\n")[0]))


def test_the_python_example_makes_a_dag() -> None:
    """The page's Python runs as it stands."""
    scope: dict[str, object] = {"__name__": "example"}
    exec(blocks("python")[0], scope)  # noqa: S102 - our own page
    dag = scope["dag"]
    assert isinstance(dag, Dag)
    assert check(dag) == ()
    assert list(dag.inputs) == ["question", "limit"]
