"""What may be asked: the bodies of requests, as pydantic models.

An unknown field is an error, because a misspelt one would change the answer in silence. Fields that mean nothing here but
are sent by common clients are taken and ignored; they are listed in ``Ignored``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_SAMPLES = 32
MAX_PROMPTS = 64
MAX_TOP_LOGPROBS = 20

TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Text = Annotated[str, Field(strict=True)]


class Ignored(BaseModel):
    """Fields without a meaning for a local engine: who asks, what is stored, how it is billed."""

    user: Any = Field(default=None, exclude=True)
    metadata: Any = Field(default=None, exclude=True)
    store: Any = Field(default=None, exclude=True)
    service_tier: Any = Field(default=None, exclude=True)
    cache_prompt: Any = Field(default=None, exclude=True, description="Prefixes are always cached.")


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Text = ""
    description: Any = Field(default=None, exclude=True)
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Request(Ignored):
    """What completions and chat completions have in common."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: Text
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, description="0 and -1 turn it off.")
    n: int = Field(default=1, ge=1, le=MAX_SAMPLES, strict=True)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Text | list[Text] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, gt=0, le=10)
    min_p: float | None = Field(default=None, ge=0, le=1)
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    ignore_eos: bool = Field(default=False, description="The model's end-of-text tokens end nothing.")
    stop_token_ids: list[TokenId] | None = None
    return_token_ids: bool = Field(default=False, description="Adds `token_ids` to every choice.")


class CompletionRequest(Request):
    """`POST /v1/completions`."""

    prompt: Text | list[TokenId] | list[Text] | list[list[TokenId]]
    max_tokens: int | None = Field(default=16, ge=1, lt=2**31, strict=True)
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: Any = Field(default=None, exclude=True)


class ChatCompletionRequest(Request):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31, strict=True)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31, strict=True)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
