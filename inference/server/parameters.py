"""From a request's body to what the engine is asked for: one order a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agentrt.errors import AgentrtError
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.server.api_error import ApiError, api_error_of
from agentrt.inference.server.fields import (
    MAX_PROMPTS,
    ChatCompletionRequest,
    CompletionRequest,
    Request,
)
from agentrt.inference.server.models import ServedModel

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Order:
    """One sample of one prompt."""

    prompt_token_ids: Sequence[int]
    sampling: SamplingParams


def parse_body(kind: type[Body], value: Any) -> Body:
    """Check a body. Raises ApiError, which names the field, the value seen and what is expected."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"] if not (isinstance(part, str) and not part.isidentifier())]
        param = ".".join(path) or None
        if first["type"] == "extra_forbidden":
            known = ", ".join(sorted(kind.model_fields))
            raise ApiError(
                400, f"unknown field {param!r}; known fields: {known}", param=param, code="unknown_field"
            ) from None
        if first["type"] == "missing":
            raise ApiError(400, f"{param} is missing", param=param, code="missing_field") from None
        shown = repr(first["input"])
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise ApiError(400, f"{param or 'the body'} is {shown}: {reason}", param=param, code="invalid_value") from None


def completion_orders(body: CompletionRequest, model: ServedModel) -> list[Order]:
    """Return the orders of `/v1/completions`, prompt by prompt."""
    prompts = _prompts(body, model)
    return [order for prompt in prompts for order in _samples(body, prompt, body.max_tokens, model)]


def chat_orders(body: ChatCompletionRequest, model: ServedModel) -> list[Order]:
    """Return the orders of `/v1/chat/completions`."""
    messages = [
        Message(
            "system" if message.role == "developer" else message.role,
            message.content if isinstance(message.content, str) else "".join(part.text for part in message.content),
        )
        for message in body.messages
    ]
    try:
        prompt = model.chat_template.encode_chat(model.tokenizer, messages)
    except AgentrtError as error:
        raise api_error_of(error) from error
    return _samples(body, prompt, body.max_completion_tokens or body.max_tokens, model)


def timeout_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `x-request-timeout-ms` allows."""
    text = headers.get("x-request-timeout-ms")
    if text is None:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = -1.0
    if not 0 < milliseconds < 1e9:
        raise ApiError(
            400,
            f"x-request-timeout-ms is {text[:40]!r}; milliseconds above 0 are expected",
            param="x-request-timeout-ms",
            code="invalid_value",
        )
    return milliseconds / 1000


def _prompts(body: CompletionRequest, model: ServedModel) -> list[Sequence[int]]:
    prompt = body.prompt
    several: list[str] | list[list[int]]
    if isinstance(prompt, str):
        several = [prompt]
    elif prompt and isinstance(prompt[0], int):
        several = [prompt]
    else:
        several = prompt  # type: ignore[assignment]
    if not 1 <= len(several) <= MAX_PROMPTS:
        message = f"prompt holds {len(several)} prompts; 1 to {MAX_PROMPTS} are expected"
        raise ApiError(400, message, param="prompt", code="invalid_value")
    return [model.tokenizer.encode(one, allow_special=False) if isinstance(one, str) else one for one in several]


def _samples(body: Request, prompt: Sequence[int], max_tokens: int | None, model: ServedModel) -> list[Order]:
    for field in ("presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(body, field):
            raise ApiError(400, f"{field} is not supported", param=field, code="unsupported_value")
    num_free = model.engine.max_context_tokens - len(prompt)
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    try:
        return [
            Order(
                prompt,
                SamplingParams(
                    # Without a limit of the caller's the context is one; a prompt without any room is refused later.
                    max_tokens=max(1, num_free) if max_tokens is None else max_tokens,
                    temperature=body.temperature,
                    top_k=body.top_k if body.top_k is not None and body.top_k > 0 else None,
                    top_p=body.top_p if body.top_p < 1 else None,
                    seed=None if body.seed is None else body.seed + sample,
                    stop=stop,
                ),
            )
            for sample in range(body.n)
        ]
    except AgentrtError as error:
        raise api_error_of(error) from error
