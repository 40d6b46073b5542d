"""YAML -> Dag -> YAML -> Dag keeps the meaning, whatever texts and values a Dag holds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from agentrt.compile.check import check
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import parse_dag
from agentrt.errors import DeclarationError, Severity
from tests.support.random_dags import dags


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags())
def test_a_dag_that_is_written_is_read_back_as_an_equal_one(dag: Dag) -> None:
    """Nothing is lost, and a second writing says the same as the first."""
    text = dag.to_yaml()
    again = parse_dag(text)
    assert again == dag
    assert again.to_yaml() == text


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(dags())
def test_a_random_dag_has_no_errors(dag: Dag) -> None:
    """Checking reports nothing wrong where everything referred to is there; where it stands in a file, everything has
    a place."""
    assert not [d for d in check(dag) if d.severity is Severity.ERROR]
    for diagnostic in check(parse_dag(dag.to_yaml(), file="d.yaml")):
        assert diagnostic.place is not None
        assert diagnostic.place.line is not None


def test_a_python_function_cannot_be_written() -> None:
    """A file has no word for a function; the error names all of them and the way out."""

    def first(x: int) -> int:
        return x

    def second(first: int) -> int:
        return first

    dag = Dag.from_functions("d", [first, second])
    with pytest.raises(DeclarationError, match="make the function a tool") as caught:
        dag.to_yaml()
    assert [d.code for d in caught.value.diagnostics] == ["DAG063", "DAG063"]
    assert all(d.place and d.place.file == __file__ for d in caught.value.diagnostics)
