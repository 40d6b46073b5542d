"""The state that the actions of one run share: typed fields, changed only through their reducers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from agentrt.declare.dag import StateField
from agentrt.declare.json_schema import misfit
from agentrt.declare.policy import Reducer
from agentrt.errors import TemplateError


class SharedState:
    """Values of the fields. A change makes a new value; one that was read before stays as it was."""

    def __init__(self, fields: Mapping[str, StateField]) -> None:
        self._fields = fields
        self.values: dict[str, Any] = {
            # Copies: a function may change what it is given, and the next run begins with what was declared.
            name: copy.deepcopy(declared.initial)
            for name, declared in fields.items()
        }

    def write(self, changes: Iterable[tuple[str, Any]]) -> None:
        """Make all changes, or none.

        Raises:
            TemplateError: a value does not suit its field.
        """
        changed = dict(self.values)
        for name, value in changes:
            declared = self._fields[name]
            try:
                changed[name] = _reduced(declared.reducer, changed[name], value)
            except TypeError:
                message = f"state field {name!r}: {declared.reducer.value!r} cannot work with {value!r:.80}"
                raise TemplateError(message) from None
            problem = misfit(changed[name], declared.schema)
            if problem is not None:
                raise TemplateError(f"state field {name!r}: {problem}")
        self.values.update(changed)


def _reduced(reducer: Reducer, before: Any, value: Any) -> Any:
    match reducer:
        case Reducer.REPLACE:
            return value
        case Reducer.APPEND:
            return [*(before or ()), value]
        case Reducer.EXTEND:
            if not isinstance(value, list):
                raise TypeError
            return [*(before or ()), *value]
        case Reducer.ADD:
            return (before or 0) + value
        case Reducer.MERGE:
            return {**(before or {}), **value}
