"""The JSON form of a run's result.

A tool may return anything, and what is printed must be valid JSON whatever it was: non-finite numbers become null (JSON
has no word for them), bytes become text, or base64 where they are not UTF-8, and what has no JSON form at all is shown
by its ``repr``. Nothing is dropped in silence and nothing raises.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import math
import os
import uuid
from collections.abc import Mapping
from typing import Any

from agentrt.errors import AgentrtError
from agentrt.run.events import ActionResult, RunResult

_MAX_DEPTH = 64
_MAX_INT_BITS = 4096
"""Python refuses to write much longer numbers in decimal."""


def result_to_json(result: RunResult) -> dict[str, Any]:
    """Return what ``agentrt run --json`` prints."""
    return {
        "run_id": result.run_id,
        "dag": result.dag,
        "status": result.status.value,
        "outputs": {name: to_json(value) for name, value in result.outputs.items()},
        "duration_s": to_json(result.duration_s),
        "trace_id": result.trace_id,
        "slo_p99_s": result.slo_p99_s,
        "error": _error_to_json(result.error),
        "actions": [_action_to_json(action) for action in result.actions],
    }


def _action_to_json(action: ActionResult) -> dict[str, Any]:
    return {
        "name": action.name,
        "status": action.status.value,
        "duration_s": to_json(action.duration_s),
        "started_s": to_json(action.started_s),
        "num_attempts": action.num_attempts,
        "output": to_json(action.output),
        "error": _error_to_json(action.error),
        "reason": action.reason,
        "tokens": to_json(action.tokens),
    }


def _error_to_json(error: AgentrtError | None) -> dict[str, str] | None:
    return None if error is None else {"type": type(error).__name__, "message": _text(str(error))}


def to_json(value: Any) -> Any:
    """Return ``value`` as JSON knows it: None, bool, int, float, str, list and dict with text keys."""
    return _convert(value, ())


def _convert(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _convert(value.value, inside)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MAX_INT_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, os.PathLike):
        return _text(os.fsdecode(value))
    if id(value) in inside or len(inside) >= _MAX_DEPTH:
        return _text(_repr(value))
    return _convert_compound(value, (*inside, id(value)))


def _convert_compound(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, Mapping):
        return {_key(key): _convert(item, inside) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert(item, inside) for item in value]
    if isinstance(value, set | frozenset):
        return [_convert(item, inside) for item in sorted(value, key=repr)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _convert(getattr(value, f.name), inside) for f in dataclasses.fields(value)}
    # A pydantic model, a numpy array and a numpy scalar are known by their method: none is imported for this.
    for method in ("model_dump", "tolist"):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            try:
                return _convert(convert(), inside)
            except Exception:
                break
    return _text(_repr(value))


def _key(key: Any) -> str:
    converted = _convert(key, ())
    if isinstance(converted, str):
        return converted
    if converted is None or isinstance(converted, bool):
        return {None: "null", True: "true", False: "false"}[converted]
    return str(converted)


def _bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _text(value: str) -> str:
    """Replace lone surrogates, which no UTF-8 stream can carry."""
    return value.encode("utf-8", "replace").decode() if not value.isascii() else str(value)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
