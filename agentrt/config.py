"""Settings of a process: read once, frozen, and the only reader of ``AGENTRT_*``.

Order of precedence: an explicit argument, the DAG file, ``AGENTRT_*``, the default. An unknown ``AGENTRT_*`` name is an
error with the nearest match, because a misspelt setting that is silently ignored is found only in production.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from agentrt.errors import ConfigError, nearest_match

ENV_PREFIX = "AGENTRT_"


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentrt"


def _default_data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "agentrt"


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Settings of one Runtime; each field may be set as ``AGENTRT_<FIELD>`` in the environment.

    ``cache_dir`` holds what can be fetched again (model files), ``data_dir`` what cannot (traces).
    """

    cache_dir: Path = field(default_factory=_default_cache_dir)
    data_dir: Path = field(default_factory=_default_data_dir)
    model: str = "smollm2-135m"
    """Model of agents that name none."""
    max_concurrency: int = 64
    """Actions running at the same time in one process."""
    engine_threads: int = field(default_factory=lambda: max(1, os.cpu_count() or 1))
    kv_cache_bytes: int = 512 * 2**20
    """Memory of the embedded engine for keys and values; the default holds the whole context of the default model."""
    trace: bool = True
    trace_content: bool = False
    """Whether prompts and answers are written into traces."""

    @property
    def trace_db(self) -> Path:
        return self.data_dir / "traces.sqlite3"

    @property
    def models_dir(self) -> Path:
        return self.cache_dir / "models"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **explicit: Any) -> RuntimeConfig:
        """Read the settings of ``environ`` (``os.environ`` by default); ``explicit`` ones that are not None win.

        Raises:
            ConfigError: an unknown ``AGENTRT_*`` name, or a value that does not parse.
        """
        environ = os.environ if environ is None else environ
        known = {f"{ENV_PREFIX}{f.name.upper()}": f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in environ.items():
            if not name.startswith(ENV_PREFIX):
                continue
            if name not in known:
                # Without the prefix: with it, everything would be near everything.
                match = nearest_match(
                    name.removeprefix(ENV_PREFIX), [known_name.removeprefix(ENV_PREFIX) for known_name in known]
                )
                hint = f"did you mean {ENV_PREFIX}{match}?" if match else f"known settings: {', '.join(sorted(known))}"
                raise ConfigError(f"unknown setting {name} in the environment ({hint})")
            try:
                values[known[name]] = _PARSERS[known[name]](text)
            except ValueError as error:
                raise ConfigError(f"{name}={text!r}: {error}") from error
        values.update({name: value for name, value in explicit.items() if value is not None})
        return cls(**values)


def _parse_bool(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off" | "":
            return False
    raise ValueError("expected true or false")


def _parse_positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None
    if value < 1:
        raise ValueError("expected a whole number of at least 1")
    return value


def _parse_bytes(text: str) -> int:
    for suffix, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("GB", 10**9), ("MB", 10**6)):
        if text.strip().endswith(suffix):
            return _parse_positive_int(text.strip().removesuffix(suffix).strip()) * factor
    return _parse_positive_int(text)


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name, got an empty string")
    return text.strip()


def _parse_path(text: str) -> Path:
    return Path(_parse_text(text)).expanduser()


_PARSERS: dict[str, Callable[[str], Any]] = {
    "cache_dir": _parse_path,
    "data_dir": _parse_path,
    "model": _parse_text,
    "max_concurrency": _parse_positive_int,
    "engine_threads": _parse_positive_int,
    "kv_cache_bytes": _parse_bytes,
    "trace": _parse_bool,
    "trace_content": _parse_bool,
}
