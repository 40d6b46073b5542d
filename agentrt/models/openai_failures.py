"""What went wrong between us and an OpenAI-compatible endpoint, as errors that a user can act on.

Endpoints agree on no error body, so several shapes are read: OpenAI's ``{"error": {...}}``, a text in ``error``,
``message`` at the top (vLLM), FastAPI's ``detail``, a list around any of them (Gemini), or plain text.

A message names the endpoint's host, what happened and the next step. It never holds the key, nor text of the prompt:
servers quote both in their errors, so what they say is searched for them before it is repeated.
"""

from __future__ import annotations

import json
import math
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2

from agentrt.errors import (
    AgentrtError,
    ModelConnectionError,
    ModelError,
    ModelOverloadedError,
    ModelResponseError,
    ModelStreamError,
    RequestError,
)
from agentrt.models.model import ChatRequest

MAX_QUOTE_CHARS = 300
_ECHO_CHARS = 24
"""A run of this many characters that also stands in the prompt is a quotation of it."""
_OVERLOADED = frozenset({429, 503, 529})
_KEY_REFUSED = frozenset({401, 403})
_REQUEST_REFUSED = frozenset({400, 413, 422})


class Failures:
    """Makes the errors of one call."""

    def __init__(
        self, host: str, model: str, *, api_key_env: str | None, secret: str | None, request: ChatRequest
    ) -> None:
        self._host = host
        self._model = model
        self._api_key_env = api_key_env
        self._secret = secret
        self._prompt = [message.content for message in request.messages]

    def of_status(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentrtError:
        """Return the error that an answer with another status than 200 stands for."""
        said = ServerMessage.parse(body)
        quote = self.quote(said.text)
        if 300 <= status < 400:
            target = urlsplit(headers.get("location", ""))
            where = f"{target.scheme}://{target.netloc}{target.path}" if target.netloc else target.path
            return ModelResponseError(
                f"{self._host} redirects ({status}) to {where or 'nowhere'}; redirects are not followed: set the "
                "endpoint to where the server really is",
                status=status,
            )
        if status in _OVERLOADED and said.code != "insufficient_quota":
            retry_after_s = parse_retry_after(headers, datetime.now(UTC))
            when = "later" if retry_after_s is None else f"in {retry_after_s:g} s"
            return ModelOverloadedError(
                f"{self._host} is overloaded or limits our rate ({status}){quote}; try again {when}",
                retry_after_s=retry_after_s,
            )
        if status in _REQUEST_REFUSED:
            field = said.field if status != 413 else "messages"
            about = f" because of {field!r}" if field else ""
            return RequestError(
                f"{self._host} refuses the request{about} ({status}){quote}; change the parameters of the call",
                field=field,
            )
        return ModelResponseError(
            f"{self._host} answered with status {status}{quote}; {self._next_step(status, said)}", status=status
        )

    def _next_step(self, status: int, said: ServerMessage) -> str:
        if status in _KEY_REFUSED and self._api_key_env is None:
            return "if it needs a key, name the environment variable that holds it in api_key_env"
        if status in _KEY_REFUSED:
            return f"check the key in the environment variable {self._api_key_env}"
        if status == 404:
            return f"check the endpoint (it usually ends in /v1) and the model's name, {self._model!r}"
        if status == 429:
            return "the account has used up its quota; check its plan"
        if status >= 500:
            return "the fault is the server's; try again, or look at its log"
        return "check the endpoint's documentation for this status"

    def of_transport(self, error: httpx2.RequestError, *, has_begun: bool) -> ModelError:
        """Return the error for a connection that was not made, or broke; ``has_begun``: tokens had arrived."""
        if has_begun:
            return ModelStreamError(
                f"{self._host}: the answer broke off in the middle: {self._reason(error)}; what had arrived is not "
                "used, try again"
            )
        return ModelConnectionError(f"{self._host}: {self._reason(error)}")

    def _reason(self, error: httpx2.RequestError) -> str:
        for cause in causes(error):
            match cause:
                case ssl.SSLCertVerificationError():
                    return (
                        f"its certificate is not trusted ({cause.verify_message}); if the endpoint is yours, name the "
                        "authority's file in SSL_CERT_FILE"
                    )
                case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE"):
                    return "it does not speak TLS; should the endpoint begin with http:// instead of https://?"
                case socket.gaierror():
                    return "its name cannot be resolved; check the endpoint's host name"
                case ConnectionRefusedError():
                    return "it refused the connection; is the server running, and on this port?"
        if isinstance(error, httpx2.ConnectTimeout):
            return f"{error}; is the server running and reachable from here?"
        if isinstance(error, httpx2.TimeoutException):
            return f"{error}; give the action more time, or look why the server is slow"
        if isinstance(error, httpx2.ConnectError):
            return f"no connection{self.quote(str(error))}; is the server running and reachable from here?"
        return f"{self._kind(error)}{self.quote(str(error))}; try again, or look at the server's log"

    @staticmethod
    def _kind(error: httpx2.RequestError) -> str:
        if isinstance(error, httpx2.ProxyError):
            return "the proxy refused"
        if isinstance(error, httpx2.DecodingError):
            return "the answer cannot be decompressed"
        return "the connection broke"

    def of_stream(self, reason: str) -> ModelStreamError:
        """Return the error for an answer that cannot be read to its end."""
        return ModelStreamError(f"{self._host}: {reason}; try again, or look at the server's log")

    def of_content(self, reason: str) -> ModelResponseError:
        """Return the error for an answer that is whole and of no use."""
        return ModelResponseError(f"{self._host}: {reason}", status=200)

    def quote(self, text: str) -> str:
        """Return ``: 'text'`` for a message, without the key, and nothing when it repeats the prompt."""
        text = " ".join(text.split())
        if self._secret:
            text = text.replace(self._secret, "***")
        text = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}..."
        if not text:
            return ""
        if any(_repeats(text, prompt) for prompt in self._prompt):
            return " (what it says repeats the prompt and is left out)"
        return f": {text!r}"


class ServerMessage:
    """What an error body says: ``text``, ``code``, and the ``field`` of the request it is about, if it tells."""

    def __init__(self, text: str, code: str = "", field: str | None = None) -> None:
        self.text = text
        self.code = code
        self.field = field
        lower = text.lower()
        if code == "context_length_exceeded" or "context length" in lower:
            self.field = "messages"
        elif "response_format" in lower or "json_schema" in lower or (field or "").startswith("response_format"):
            self.field = "response_format"

    @classmethod
    def parse(cls, body: bytes) -> ServerMessage:
        try:
            value: Any = json.loads(body)
        except (ValueError, RecursionError):
            text = body.decode("utf-8", errors="replace")
            # A page for people says nothing that fits on one line.
            return cls("" if text.lstrip().startswith("<") else "".join(c for c in text if c.isprintable() or c == " "))
        return cls.of_value(value)

    @classmethod
    def of_value(cls, value: Any) -> ServerMessage:
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, dict):
            return cls("")
        if value.get("error"):
            return cls.of_value(value["error"])
        if "detail" in value:
            return cls.of_value(value["detail"])
        text = value.get("message") or value.get("msg")
        field = value.get("param")
        location = value.get("loc")
        if not field and isinstance(location, list) and location:
            field = location[-1]
        return cls(
            text if isinstance(text, str) else "",
            code=str(value.get("code") or ""),
            field=field if isinstance(field, str) else None,
        )


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds that ``Retry-After`` asks to wait (a number, or a date), or None without a usable one."""
    text = headers.get("retry-after", "").strip()
    try:
        wait_s = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        wait_s = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return max(0.0, wait_s) if math.isfinite(wait_s) else None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and everything it came from, through chains and groups."""
    unseen: list[BaseException | None] = [error]
    seen: set[int] = set()
    while unseen:
        cause = unseen.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        unseen += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            unseen += cause.exceptions


def _repeats(text: str, prompt: str) -> bool:
    if len(prompt) < _ECHO_CHARS:
        return len(prompt) >= 4 and prompt in text
    return any(text[i : i + _ECHO_CHARS] in prompt for i in range(max(1, len(text) - _ECHO_CHARS + 1)))
