"""From a request's body to what the engine is asked for: one order a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agentrt.inference.grammar import Grammar
from agentrt.inference.prefix_cache import Namespace
from agentrt.inference.ranking import MAX_PRIORITY
from agentrt.inference.request import SchedulingParams
from agentrt.inference.sampling_params import SamplingParams, seed_of_sample
from agentrt.inference.server.api_error import ApiError
from agentrt.inference.server.fields import (
    MAX_PROMPTS,
    ChatCompletionRequest,
    CompletionRequest,
    Request,
    ResponseFormat,
)
from agentrt.inference.server.models import ServedModel

MAX_ID_LENGTH = 200

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
    """Return the orders of `/v1/completions`, prompt by prompt. Raises RequestError for a value the engine refuses."""
    prompts = _prompts(body, model)
    return [order for prompt in prompts for order in _samples(body, prompt, body.max_tokens, body.logprobs or 0, model)]


def chat_orders(body: ChatCompletionRequest, model: ServedModel) -> list[Order]:
    """Return the orders of `/v1/chat/completions`. Raises RequestError, also for messages the chat template refuses."""
    messages = [
        Message(
            "system" if message.role == "developer" else message.role,
            message.content if isinstance(message.content, str) else "".join(part.text for part in message.content),
        )
        for message in body.messages
    ]
    prompt = model.chat_template.encode_chat(model.tokenizer, messages)
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs", code="invalid_value")
    return _samples(body, prompt, body.max_completion_tokens or body.max_tokens, body.top_logprobs or 0, model)


def scheduling_of(headers: Mapping[str, str]) -> SchedulingParams:
    """Return for whom a request is, as `x-run-id`, `x-tenant` and `x-priority` say."""
    for name in ("x-run-id", "x-tenant"):
        if len(headers.get(name, "")) > MAX_ID_LENGTH:
            raise ApiError(400, f"{name} is longer than {MAX_ID_LENGTH} characters", param=name, code="invalid_value")
    text = headers.get("x-priority", "0")
    try:
        priority = int(text)
    except ValueError:
        priority = MAX_PRIORITY + 1
    if abs(priority) > MAX_PRIORITY:
        message = f"x-priority is {text[:40]!r}; a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY} is expected"
        raise ApiError(400, message, param="x-priority", code="invalid_value")
    namespace = Namespace(tenant=headers.get("x-tenant", ""))
    return SchedulingParams(run_id=headers.get("x-run-id"), priority=priority, namespace=namespace)


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
    is_one = isinstance(prompt, str) or (len(prompt) > 0 and isinstance(prompt[0], int))
    several: Any = [prompt] if is_one else prompt
    if not 1 <= len(several) <= MAX_PROMPTS:
        message = f"prompt holds {len(several)} prompts; 1 to {MAX_PROMPTS} are expected"
        raise ApiError(400, message, param="prompt", code="invalid_value")
    return [model.tokenizer.encode(one, allow_special=False) if isinstance(one, str) else one for one in several]


def _samples(
    body: Request, prompt: Sequence[int], max_tokens: int | None, num_logprobs: int, model: ServedModel
) -> list[Order]:
    num_free = model.engine.max_context_tokens - len(prompt)
    sampling = SamplingParams(
        # Without a limit of the caller's the context is one; a prompt without any room is refused later.
        max_tokens=max(1, num_free) if max_tokens is None else max_tokens,
        temperature=body.temperature,
        top_k=body.top_k if body.top_k is not None and body.top_k > 0 else None,
        top_p=body.top_p if body.top_p < 1 else None,
        min_p=body.min_p or None,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=_logit_bias(body.logit_bias or {}),
        num_logprobs=num_logprobs,
        ignore_eos=body.ignore_eos,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        grammar=_grammar(body.response_format),
    )
    return [Order(prompt, replace(sampling, seed=seed_of_sample(sampling.seed, sample))) for sample in range(body.n)]


def _logit_bias(bias: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    pairs = []
    for text, value in bias.items():
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            message = f"logit_bias has the key {text[:40]!r}; a token id is expected"
            raise ApiError(400, message, param="logit_bias", code="invalid_value")
        pairs.append((int(text), value))
    return tuple(pairs)


def _grammar(form: ResponseFormat | None) -> Grammar | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return Grammar.json_object()
    if form.json_schema is None:
        raise ApiError(400, "response_format.json_schema is missing", param="response_format", code="missing_field")
    return Grammar.json_schema(form.json_schema.json_schema)
