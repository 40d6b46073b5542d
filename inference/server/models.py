"""The models that a server has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrt.inference.async_engine import AsyncEngine
from agentrt.inference.chat_template import ChatTemplate
from agentrt.inference.server.api_error import ApiError
from agentrt.inference.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``created_s``: seconds since 1970, when it was loaded."""

    name: str
    engine: AsyncEngine
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    created_s: int


def find_model(models: Mapping[str, ServedModel], name: str) -> ServedModel:
    """Raises ApiError: there is no such model here."""
    if name not in models:
        raise ApiError(
            404,
            f"model {name[:80]!r} is not served here; there is {', '.join(models)}",
            param="model",
            code="model_not_found",
        )
    return models[name]
