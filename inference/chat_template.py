"""A model's chat template: messages to the text it was trained to answer, and to token ids.

The template is part of the model file and runs in `template_sandbox`. Contents of messages are data: what
they spell never becomes a control token, see `tokenizer.py` for how.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError

from agentrt.errors import ModelFileError, RequestError
from agentrt.inference.file_fields import Fields, read_json
from agentrt.inference.template_sandbox import (
    TEMPLATE_FAULTS,
    WORK,
    TemplateEnvironment,
    TemplateRefusal,
    Work,
)
from agentrt.inference.tokenizer import Tokenizer

MAX_TEMPLATE_CHARS = 256 * 1024


class ChatMessage(Protocol):
    """One message; agentrt's own Message is one."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...


class ChatTemplate:
    """A compiled chat template. Immutable; may be used by several threads."""

    def __init__(self, source: str, *, path: Path, bos_token: str = "", eos_token: str = "") -> None:
        """Compile ``source``, which was read from ``path``.

        Raises:
            ModelFileError: it is no template, or uses what templates may not use here.
        """
        self.path = path
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelFileError(
                f"{path}: its chat template has {len(source)} characters; at most {MAX_TEMPLATE_CHARS} are read"
            )
        try:
            self._template = TemplateEnvironment().compile_metered(source)
        except TEMPLATE_FAULTS as error:
            where = f" (line {error.lineno})" if isinstance(error, TemplateError) and hasattr(error, "lineno") else ""
            raise ModelFileError(f"{path}: its chat template is not valid{where}: {_one_line(error)}") from error

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the text of a chat, ready for the assistant's answer.

        Raises:
            RequestError: the template refuses the messages, or fails on them; ``field`` is "messages".
        """
        return self._render([(message.role, message.content) for message in messages])

    def encode_chat(self, tokenizer: Tokenizer, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the token ids of a chat, ready for the assistant's answer. Raises what `render` raises."""
        protected = [(message.role, tokenizer.protect(message.content)) for message in messages]
        return tokenizer.encode(self._render(protected), allow_special=True)

    def _render(self, messages: list[tuple[str, str]]) -> str:
        context: dict[str, Any] = {
            "messages": [{"role": role, "content": content} for role, content in messages],
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            **self._tokens,
            WORK: Work(len(messages), sum(len(content) for _, content in messages)),
        }
        try:
            text: str = self._template.render(context)
        except TemplateRefusal as error:
            raise RequestError(f"the model's chat template refuses: {_one_line(error)}", field="messages") from error
        except TEMPLATE_FAULTS as error:
            raise RequestError(
                f"the chat template of {self.path} fails on these messages: {_one_line(error)}",
                field="messages",
            ) from error
        return text


def chat_template_from_gguf(fields: Fields, tokenizer: Tokenizer) -> ChatTemplate:
    """Read the template in a GGUF file's metadata. Raises ModelFileError, also when there is none."""
    if "tokenizer.chat_template" not in fields:
        raise _no_template(fields.path)
    return _template(fields.text("tokenizer.chat_template"), fields.path, tokenizer)


def chat_template_from_folder(folder: Path, tokenizer_config: Fields, tokenizer: Tokenizer) -> ChatTemplate:
    """Read the template of a Hugging Face folder: chat_template.jinja, chat_template.json or
    tokenizer_config.json.

    Raises:
        ModelFileError: there is none, or it is not valid.
    """
    written = folder / "chat_template.jinja"
    if written.exists():
        try:
            return _template(written.read_text(encoding="utf-8"), written, tokenizer)
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFileError(f"{written}: cannot be read: {error}") from error
    fields = tokenizer_config
    if "chat_template" not in fields and (folder / "chat_template.json").exists():
        fields = read_json(folder / "chat_template.json")
    if "chat_template" not in fields:
        raise _no_template(folder)
    value = fields.raw("chat_template")
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    if not isinstance(value, str):
        raise fields.error("chat_template", "a text, or a list with a template named default, is expected")
    return _template(value, fields.path, tokenizer)


def _template(source: str, path: Path, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(source, path=path, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)


def _no_template(path: Path) -> ModelFileError:
    return ModelFileError(
        f"{path}: has no chat template, so how to speak with the model is not known; use the model's -Instruct or "
        "-Chat variant"
    )


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
