"""Typed reading of what a model file says about itself: GGUF metadata and the JSON files of a Hugging Face
folder.

Both are written by others and may be damaged, so every value is checked for type and range where it is read,
and what is wrong is said with the file and the key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrt.errors import ModelFileError

MAX_JSON_BYTES = 128 * 2**20


def read_json(path: Path) -> Fields:
    """Read a JSON object.

    Raises:
        ModelFileError: it is missing, unreadable, larger than 128 MiB, or not an object.
    """
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_JSON_BYTES:
            raise ModelFileError(f"{path}: {size_bytes} bytes of JSON; at most {MAX_JSON_BYTES} are read")
        value: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: a JSON object is expected, not {type(value).__name__}")
    return Fields(path, value)


class Fields:
    """Keys and values of one file. A key that is absent, or null, takes the default or, without one, is an
    error."""

    def __init__(self, path: Path, values: Mapping[str, Any], *, prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def raw(self, key: str) -> Any:
        """Return the value as it stands in the file, or None."""
        return self._values.get(key)

    def raw_items(self) -> list[tuple[str, Any]]:
        return list(self._values.items())

    def integer(self, key: str, default: int | None = None, *, low: int = 0, high: int = 2**31 - 1) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "a whole number is expected")
        if not low <= value <= high:
            raise self.error(key, f"a whole number from {low} to {high} is expected")
        return value

    def number(self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, "a number is expected")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.error(key, f"a number from {low:g} to {high:g} is expected")
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false is expected")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, "a text is expected")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._value(key, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "a list of texts is expected")
        return value

    def integers(self, key: str) -> list[int]:
        value = self._value(key, None)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            return [int(item) for item in value.tolist()]
        if isinstance(value, list) and all(type(item) is int for item in value):
            return value
        raise self.error(key, "a list of whole numbers is expected")

    def numbers(self, key: str) -> list[float]:
        value = self._value(key, None)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return [float(item) for item in value.tolist()]
        if isinstance(value, list) and all(type(item) in (int, float) for item in value):
            return [float(item) for item in value]
        raise self.error(key, "a list of numbers is expected")

    def fields(self, key: str) -> Fields:
        value = self._value(key, None)
        if not isinstance(value, dict):
            raise self.error(key, "an object is expected")
        return Fields(self.path, value, prefix=f"{self._prefix}{key}.")

    def error(self, key: str, expected: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {self._prefix}{key} = {shorten(self._values.get(key))}: {expected}")

    def _value(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelFileError(f"{self.path}: {self._prefix}{key} is missing")
        return default


def shorten(value: object) -> str:
    """Return a value as one short line for a message."""
    if isinstance(value, np.ndarray) or (isinstance(value, Sequence) and not isinstance(value, str)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
