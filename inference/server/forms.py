"""How answers are written: OpenAI's objects for completions and for chats, whole and in chunks."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentrt.inference.output import Finished, TokenOutput
from agentrt.inference.server.models import ServedModel

_FINISH_REASONS = {"stop": "stop", "length": "length", "choice": "stop"}


@dataclass(slots=True)
class Sample:
    """One sample as far as it got."""

    outputs: list[TokenOutput] = field(default_factory=list)
    num_characters: int = 0

    @property
    def text(self) -> str:
        return "".join(output.text for output in self.outputs)

    @property
    def finished(self) -> Finished | None:
        return self.outputs[-1].finished if self.outputs else None

    def take(self, output: TokenOutput) -> None:
        self.outputs.append(output)
        self.num_characters += len(output.text)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a caller wants to see beside the text."""

    logprobs: bool = False
    token_ids: bool = False

    @property
    def tokens(self) -> bool:
        """Whether a token matters that has no text."""
        return self.logprobs or self.token_ids


class Form(Protocol):
    """Writes the choices of one kind of answer."""

    @property
    def whole_object(self) -> str: ...
    @property
    def chunk_object(self) -> str: ...
    @property
    def id_prefix(self) -> str: ...

    def begin(self, index: int) -> dict[str, Any] | None:
        """Return the choice that opens a stream, if there is one."""
        ...

    def delta(self, index: int, output: TokenOutput, text_offset: int) -> dict[str, Any]: ...

    def choice(self, index: int, sample: Sample) -> dict[str, Any]: ...


@dataclass(frozen=True)
class CompletionForm:
    model: ServedModel
    shown: Shown

    whole_object = chunk_object = "text_completion"
    id_prefix = "cmpl-"

    def begin(self, index: int) -> dict[str, Any] | None:
        return None

    def delta(self, index: int, output: TokenOutput, text_offset: int) -> dict[str, Any]:
        return self._choice(index, output.text, [output], text_offset, output.finished)

    def choice(self, index: int, sample: Sample) -> dict[str, Any]:
        return self._choice(index, sample.text, sample.outputs, 0, sample.finished)

    def _choice(
        self, index: int, text: str, outputs: Sequence[TokenOutput], offset: int, finished: Finished | None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "text": text, "logprobs": None, "finish_reason": _reason(finished)}
        if self.shown.logprobs:
            offsets = [offset]
            for output in outputs:
                offsets.append(offsets[-1] + len(output.text))
            choice["logprobs"] = {
                "tokens": [_token_text(self.model, output.token_id) for output in outputs],
                "token_logprobs": [output.logprob for output in outputs],
                "top_logprobs": [
                    {_token_text(self.model, token_id): logprob for token_id, logprob in output.top_logprobs}
                    for output in outputs
                ],
                "text_offset": offsets[:-1],
            }
        if self.shown.token_ids:
            choice["token_ids"] = [output.token_id for output in outputs]
        return choice


@dataclass(frozen=True)
class ChatForm:
    model: ServedModel
    shown: Shown

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def begin(self, index: int) -> dict[str, Any] | None:
        return {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, output: TokenOutput, text_offset: int) -> dict[str, Any]:
        delta = {"content": output.text} if output.text else {}
        return self._choice(index, "delta", delta, [output], output.finished)

    def choice(self, index: int, sample: Sample) -> dict[str, Any]:
        message = {"role": "assistant", "content": sample.text, "refusal": None}
        return self._choice(index, "message", message, sample.outputs, sample.finished)

    def _choice(
        self, index: int, name: str, content: dict[str, Any], outputs: Sequence[TokenOutput], finished: Finished | None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, name: content, "logprobs": None, "finish_reason": _reason(finished)}
        if self.shown.logprobs:
            choice["logprobs"] = {
                "content": [
                    {
                        **self._scored(output.token_id, output.logprob),
                        "top_logprobs": [self._scored(*scored) for scored in output.top_logprobs],
                    }
                    for output in outputs
                ]
            }
        if self.shown.token_ids:
            choice["token_ids"] = [output.token_id for output in outputs]
        return choice

    def _scored(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelling = self.model.tokenizer.token_bytes(token_id)
        return {"token": spelling.decode(errors="replace"), "logprob": logprob, "bytes": list(spelling)}


@dataclass(slots=True)
class Envelope:
    """What every object of one answer repeats."""

    form: Form
    model_name: str
    number: str = field(default_factory=lambda: uuid.uuid4().hex)
    created_s: int = field(default_factory=lambda: int(time.time()))

    def whole(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._head(self.form.whole_object), "choices": choices, "usage": usage}

    def event(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        """Return a chunk as a server-sent event."""
        chunk = {**self._head(self.form.chunk_object), "choices": choices}
        if usage is not None:
            chunk["usage"] = usage
        return event(chunk)

    def _head(self, kind: str) -> dict[str, Any]:
        name = self.form.id_prefix + self.number
        return {"id": name, "object": kind, "created": self.created_s, "model": self.model_name}


def event(value: dict[str, Any]) -> bytes:
    """Return a server-sent event of one JSON object."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def usage_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """Add up what finished samples took. Samples of one prompt each count it, as each was computed or found."""
    done = [sample.finished for sample in samples if sample.finished is not None]
    num_prompt = sum(finished.num_prompt_tokens for finished in done)
    num_output = sum(finished.num_output_tokens for finished in done)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_output,
        "total_tokens": num_prompt + num_output,
        "prompt_tokens_details": {"cached_tokens": sum(finished.num_cached_tokens for finished in done)},
    }


def _reason(finished: Finished | None) -> str | None:
    return None if finished is None else _FINISH_REASONS[finished.reason.value]


def _token_text(model: ServedModel, token_id: int) -> str:
    return model.tokenizer.token_bytes(token_id).decode(errors="replace")
