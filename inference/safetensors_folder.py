"""Reading the weights of a Hugging Face folder: `model.safetensors`, or several files and their index.

Only safetensors is read. The older `pytorch_model.bin` is a pickle, and unpickling a file runs whatever is in
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open

from agentrt.errors import ModelFileError
from agentrt.inference.file_fields import read_json, shorten

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
SUPPORTED_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})


@dataclass(frozen=True, slots=True)
class FolderTensor:
    name: str
    shape: tuple[int, ...]
    file: Any
    """The open safetensors file it is in."""


class SafetensorsFolder:
    """The weights of an open folder. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Open every file and check its header.

        Raises: ModelFileError: there are no safetensors, one is missing or cut short, or holds types not
            supported.
        """
        self.path = folder
        self._stack = ExitStack()
        self.tensors: Mapping[str, FolderTensor] = {}
        try:
            self.tensors = self._open_all()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.tensors.get(name)
        return tensor.shape if tensor else None

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Read a tensor into ``out``, converted to its dtype."""
        tensor = self.tensors[name]
        try:
            out.copy_(tensor.file.get_tensor(name).view(out.shape))
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{self.path}: tensor {shorten(name)} cannot be read: {error}") from error

    def _open_all(self) -> dict[str, FolderTensor]:
        if (self.path / SINGLE_FILE).exists():
            return self._open(SINGLE_FILE)
        if not (self.path / INDEX_FILE).exists():
            pickled = next((path.name for path in _listed(self.path) if path.suffix in (".bin", ".pt", ".pth")), None)
            hint = (
                f"{pickled} is pickled and never loaded; convert it to safetensors"
                if pickled
                else f"{SINGLE_FILE} or {INDEX_FILE} is expected"
            )
            raise ModelFileError(f"{self.path}: holds no safetensors: {hint}")
        index = read_json(self.path / INDEX_FILE)
        weight_map = index.fields("weight_map")
        names = weight_map.raw_items()
        files = sorted({str(file) for _, file in names})
        for file in files:
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise index.error("weight_map", f"{shorten(file)} is not the name of a safetensors file beside it")
        tensors: dict[str, FolderTensor] = {}
        for file in files:
            tensors.update(self._open(file))
        for name, _ in names:
            if name not in tensors:
                raise index.error("weight_map", f"tensor {shorten(name)} is in none of the files")
        return tensors

    def _open(self, name: str) -> dict[str, FolderTensor]:
        path = self.path / name
        if not path.is_file():
            raise ModelFileError(f"{path}: is missing; fetch the model again")
        try:
            file = self._stack.enter_context(safe_open(path, framework="pt"))
            tensors = {}
            for key in file.keys():  # noqa: SIM118 - the object is no mapping
                view = file.get_slice(key)
                if view.get_dtype() not in SUPPORTED_DTYPES:
                    raise ModelFileError(
                        f"{path}: tensor {shorten(key)} is {view.get_dtype()}; supported types are "
                        f"{', '.join(sorted(SUPPORTED_DTYPES))}"
                    )
                tensors[key] = FolderTensor(key, tuple(view.get_shape()), file)
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{path}: is cut short or damaged: {error}") from error
        return tensors


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise ModelFileError(f"{folder}: cannot be read: {error.strerror or error}") from error
