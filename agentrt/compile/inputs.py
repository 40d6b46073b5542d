"""Fitting what a caller gives to the inputs a Dag declares: all mistakes in one message, before anything runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from agentrt.declare.dag import Dag, Input
from agentrt.declare.json_schema import misfit
from agentrt.errors import InputError, nearest_match


def bind_inputs(dag: Dag, given: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Return a value for every input of ``dag``: the given one or its default.

    With ``coerce_text`` a text given for an input that is no text is read as JSON, as command lines know only texts.

    Raises:
        InputError: unknown or missing inputs, or values that do not fit their schemas; tells all of them.
    """
    problems: list[str] = []
    for name in given:
        if name not in dag.inputs:
            match = nearest_match(name, dag.inputs)
            known = ", ".join(dag.inputs) or "none"
            hint = f"did you mean {match!r}?" if match else f"the inputs are: {known}"
            problems.append(f"there is no input {name!r} ({hint})")
    bound: dict[str, Any] = {}
    for name, declared in dag.inputs.items():
        if name not in given:
            if declared.required:
                about = f": {declared.description}" if declared.description else ""
                problems.append(f"input {name!r} is missing{about}")
            bound[name] = copy.deepcopy(declared.default)
            continue
        value = given[name]
        if coerce_text and isinstance(value, str):
            value = _from_text(value, declared)
        problem = misfit(value, declared.schema)
        if problem is not None:
            problems.append(f"input {name!r}: {problem}")
        # To JSON Schema 3.0 is an integer; to a condition it is not one.
        is_whole = isinstance(value, float) and declared.schema.get("type") == "integer" and value.is_integer()
        bound[name] = int(value) if is_whole else value
    if problems:
        raise InputError(f"Dag {dag.name!r}: {'; '.join(problems)}")
    return bound


def _from_text(text: str, declared: Input) -> Any:
    """Read ``text`` as what the schema asks for; a text stays a text wherever one is allowed."""
    types = declared.schema.get("type", ())
    if "string" in ([types] if isinstance(types, str) else types):
        return text
    if not types and misfit(text, declared.schema) is None:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # Left as it is: the schema then says what it expected instead.
        return text
