"""What the files of embedded models say of them, read without loading a model: how much it reads, and its tokens.

Nothing is fetched, and torch is not imported: `agentrt check` asks. A model that is not on this machine, one behind an
endpoint and one whose file cannot be read are unknown; what is wrong with a file is told when it is loaded.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agentrt.config import RuntimeConfig
from agentrt.declare.agent import ModelRef
from agentrt.errors import ModelFileError
from agentrt.models.catalog import CATALOG, HUB_PREFIX
from agentrt.models.download import find_pulled

if TYPE_CHECKING:
    from agentrt.inference.file_fields import Fields
    from agentrt.inference.tokenizer import Tokenizer


class ModelFileFacts:
    """Facts about models by reference; each file is read once, at the first question.

    ``given`` names the caller's own Model objects, of which no file tells (see ``ModelRegistry``).
    """

    def __init__(self, config: RuntimeConfig, *, given: Collection[str] = ()) -> None:
        self._config = config
        self._given = given
        self._files: dict[tuple[ModelRef, Path | None], _ModelFile | None] = {}

    def context_tokens(self, ref: ModelRef | None, base_dir: Path | None) -> int | None:
        """Return how many tokens prompt and answer may have together, as the model's file states it; None if unknown."""
        file = self._file(ref, base_dir)
        return None if file is None else file.context_tokens

    def count_tokens(self, ref: ModelRef | None, base_dir: Path | None, text: str) -> int | None:
        """Return how many tokens a text has by itself; None if unknown."""
        file = self._file(ref, base_dir)
        tokenizer = None if file is None else file.tokenizer
        return None if tokenizer is None else len(tokenizer.encode(text, allow_special=False))

    def _file(self, ref: ModelRef | None, base_dir: Path | None) -> _ModelFile | None:
        ref = ref or ModelRef(self._config.model)
        key = ref, base_dir
        if key not in self._files:
            path = None if ref.endpoint is not None or ref.name in self._given else self._find(ref.name, base_dir)
            self._files[key] = None if path is None else _ModelFile(path)
        return self._files[key]

    def _find(self, name: str, base_dir: Path | None) -> Path | None:
        """Return where a model is on this machine, by the rules of ``catalog.resolve``.

        Models of a hub lie in the hub's own cache, which only its client can read.
        """
        if name.startswith(HUB_PREFIX):
            return None
        spec = CATALOG.get(name)
        if spec is not None:
            return find_pulled(spec, self._config.models_dir)
        try:
            path = (base_dir or Path()) / Path(name).expanduser()
            return path if name.strip() and path.exists() else None
        except (OSError, ValueError, RuntimeError):
            return None  # no path at all, such as '~nobody/model'


class _ModelFile:
    """A GGUF file, or a folder as Hugging Face lays it out."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _fields(self) -> Fields | None:
        try:
            if self._path.is_dir():
                from agentrt.inference.file_fields import read_json

                return read_json(self._path / "config.json")
            from agentrt.inference.gguf_header import read_metadata

            return read_metadata(self._path)
        except ModelFileError:
            return None

    @cached_property
    def context_tokens(self) -> int | None:
        if self._fields is None:
            return None
        try:
            if self._path.is_dir():
                return self._fields.integer("max_position_embeddings", low=1)
            return self._fields.integer(f"{self._fields.text('general.architecture')}.context_length", low=1)
        except ModelFileError:
            return None

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        if self._fields is None:
            return None
        try:
            if not self._path.is_dir():
                from agentrt.inference.tokenizer_gguf import tokenizer_from_gguf

                return tokenizer_from_gguf(self._fields)
            from agentrt.inference.file_fields import Fields, read_json
            from agentrt.inference.tokenizer_json import tokenizer_from_folder

            path = self._path / "tokenizer_config.json"
            return tokenizer_from_folder(
                self._path, self._fields, read_json(path) if path.exists() else Fields(path, {})
            )
        except ModelFileError:
            return None
