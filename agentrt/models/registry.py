"""Which Model object answers to a name: made once, shared by all runs of a Runtime, closed with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from agentrt.config import RuntimeConfig
from agentrt.declare.agent import ModelRef
from agentrt.models.model import Model
from agentrt.net.http_pool import HttpPool


class ModelRegistry:
    """Models by reference.

    ``given`` are the caller's own Model objects by name; they win over the catalog and are not closed here.
    """

    def __init__(self, config: RuntimeConfig, *, pool: HttpPool, given: Mapping[str, Model] | None = None) -> None:
        self._config = config
        self._pool = pool
        self._given = dict(given or {})
        self._made: dict[tuple[ModelRef, Path | None], Model] = {}

    def get(self, ref: ModelRef | None, base_dir: Path | None) -> Model:
        """Return the model ``ref`` names, the same object each time; None names the configured default.

        Nothing is loaded or connected yet. Relative paths start from ``base_dir``.

        Raises:
            UnknownModelError: nothing answers to that name.
        """
        ref = ref or ModelRef(self._config.model)
        if ref.endpoint is None and ref.name in self._given:
            return self._given[ref.name]
        key = (ref, base_dir)
        if key not in self._made:
            self._made[key] = self._make(ref, base_dir)
        return self._made[key]

    def _make(self, ref: ModelRef, base_dir: Path | None) -> Model:
        if ref.endpoint is not None:
            from agentrt.models.openai import OpenAIModel

            return OpenAIModel(ref.name, endpoint=ref.endpoint, api_key_env=ref.api_key_env, pool=self._pool)
        from agentrt.models.catalog import resolve
        from agentrt.models.embedded import EmbeddedModel

        return EmbeddedModel(resolve(ref.name, self._config, base_dir), self._config)

    async def aclose(self) -> None:
        """Close every model made here, even when closing one fails."""
        made, self._made = self._made, {}
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                for model in made.values():
                    stack.push_async_callback(model.aclose)
