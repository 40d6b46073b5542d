"""How a request fails: a status and OpenAI's error object, naming the field that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentrt.errors import (
    AgentrtError,
    EngineError,
    ModelOverloadedError,
    PromptTooLongError,
    QueueFullError,
    RequestError,
    TimeoutExpiredError,
    UnknownModelError,
)


@dataclass(eq=False)
class ApiError(Exception):
    """An answer that is an error. ``kind`` and ``code`` are OpenAI's words."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


# What the engine calls a field, and what the API calls it.
_PARAMS = {
    "prompt_token_ids": "prompt",
    "timeout_s": "x-request-timeout-ms",
    "grammar": "response_format",
    "num_logprobs": "logprobs",
}


def api_error_of(error: AgentrtError) -> ApiError:
    """Return what a caller is told of an error; nothing about files or the inside of the server."""
    match error:
        case PromptTooLongError():
            return ApiError(400, str(error), param="prompt", code="context_length_exceeded")
        case RequestError():
            return ApiError(400, str(error), param=_PARAMS.get(error.field or "", error.field), code="invalid_value")
        case UnknownModelError():
            return ApiError(404, str(error), param="model", code="model_not_found")
        case TimeoutExpiredError():
            return ApiError(504, str(error), kind="timeout_error", code="timeout")
        case ModelOverloadedError():
            wait_s = error.retry_after_s or 1.0
            return ApiError(429, str(error), kind="rate_limit_error", code="overloaded", retry_after_s=wait_s)
        case QueueFullError():
            return ApiError(
                429, str(error), kind="rate_limit_error", code="overloaded", retry_after_s=error.retry_after_s
            )
        case EngineError():
            return ApiError(500, str(error), kind="server_error", code="engine_error")
    return ApiError(500, "the server failed", kind="server_error", code="internal_error")
