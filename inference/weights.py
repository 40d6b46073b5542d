"""Loading a model: a GGUF file or a Hugging Face folder becomes weights, a tokenizer and a chat template.

Everything is checked before weights are read, in order of cost: the header, the architecture, the shapes of
all tensors, the tokenizer, the template. What is wrong is said in one line, with the file, what was found and
what is supported. Nothing is ever unpickled, and nothing in a file is executed but its chat template, in a
sandbox.
"""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from gguf.constants import GGMLQuantizationType

from agentrt.errors import EngineError, ModelFileError
from agentrt.inference.chat_template import (
    ChatTemplate,
    chat_template_from_folder,
    chat_template_from_gguf,
)
from agentrt.inference.cpu.library import load_library
from agentrt.inference.cpu.llama import describe_llama
from agentrt.inference.cpu.model import CpuModel
from agentrt.inference.file_fields import Fields, read_json, shorten
from agentrt.inference.gguf_file import GgufFile
from agentrt.inference.models.llama_config import llama_config_from_gguf, llama_config_from_json
from agentrt.inference.models.llama_tensors import GGUF_NAMES, SAFETENSORS_NAMES
from agentrt.inference.tokenizer import Tokenizer
from agentrt.inference.tokenizer_gguf import tokenizer_from_gguf
from agentrt.inference.tokenizer_json import tokenizer_from_folder

if TYPE_CHECKING:
    import torch

    from agentrt.inference.forward import ForwardModel

_log = logging.getLogger(__name__)

GGUF_ARCHITECTURES = ("llama",)
FOLDER_MODEL_TYPES = ("llama", "mistral")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. ``name`` is what its file calls it."""

    model: ForwardModel | CpuModel
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    name: str
    architecture: str
    max_context_tokens: int


def load_model(path: Path, *, dtype: torch.dtype | None = None) -> LoadedModel:
    """Load a `.gguf` file, or a folder with config.json, tokenizer.json and safetensors.

    A GGUF file keeps its quantised weights and is computed by the C++ step, where there is a library for it or a compiler
    to make one. Without either (said once in the log) or when a ``dtype`` is given, weights become that, or float32, for
    torch.

    Raises:
        ModelFileError: it is missing, cut short, damaged, or of a kind that is not supported.
    """
    if path.is_dir():
        return _load_folder(path, dtype)
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        raise ModelFileError(f"{path}: pickled files are never loaded; use a GGUF file or a folder with safetensors")
    if path.suffix == ".safetensors":
        raise ModelFileError(
            f"{path}: is weights alone; name the folder that also holds config.json and tokenizer.json"
        )
    return _load_gguf(path, dtype)


def _load_gguf(path: Path, dtype: torch.dtype | None) -> LoadedModel:
    with GgufFile(path) as file:
        fields = file.fields
        architecture = fields.text("general.architecture")
        if architecture not in GGUF_ARCHITECTURES:
            raise fields.error(
                "general.architecture", f"the supported architectures are {', '.join(GGUF_ARCHITECTURES)}"
            )
        if fields.integer("split.count", 1) > 1:
            raise fields.error(
                "split.count", "split files are not supported; join them with `llama-gguf-split --merge`"
            )
        embedding = file.shape(GGUF_NAMES.embedding)
        if embedding is None:
            raise ModelFileError(f"{path}: lacks the tensor {GGUF_NAMES.embedding}")
        config = llama_config_from_gguf(fields, vocab_size=embedding[0], divisors=_divisors(file))
        tokenizer = tokenizer_from_gguf(fields)
        _check_vocabulary(path, tokenizer, config.vocab_size)
        chat_template = chat_template_from_gguf(fields, tokenizer)
        model: ForwardModel | CpuModel
        if dtype is None and _has_library():
            model = CpuModel(describe_llama(file, config))
        else:
            torch = _import_torch()
            from agentrt.inference.models.llama_loading import load_llama

            tied = file.shape(GGUF_NAMES.head) is None
            model = load_llama(file, config, GGUF_NAMES, tied=tied, dtype=dtype or torch.float32)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        chat_template=chat_template,
        name=fields.text("general.name", path.stem),
        architecture=architecture,
        max_context_tokens=config.max_context_tokens,
    )


def _load_folder(folder: Path, dtype: torch.dtype | None) -> LoadedModel:
    torch = _import_torch()
    from agentrt.inference.models.llama_loading import load_llama
    from agentrt.inference.safetensors_folder import SafetensorsFolder

    fields = read_json(folder / "config.json")
    architecture = fields.text("model_type")
    if architecture not in FOLDER_MODEL_TYPES:
        raise fields.error("model_type", f"the supported model types are {', '.join(FOLDER_MODEL_TYPES)}")
    config = llama_config_from_json(fields)
    with SafetensorsFolder(folder) as file:
        tokenizer_file = folder / "tokenizer_config.json"
        tokenizer_config = read_json(tokenizer_file) if tokenizer_file.exists() else Fields(tokenizer_file, {})
        tokenizer = tokenizer_from_folder(folder, fields, tokenizer_config)
        _check_vocabulary(folder, tokenizer, config.vocab_size)
        chat_template = chat_template_from_folder(folder, tokenizer_config, tokenizer)
        tied = fields.boolean("tie_word_embeddings", False)
        model = load_llama(file, config, SAFETENSORS_NAMES, tied=tied, dtype=dtype or torch.float32)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        chat_template=chat_template,
        name=folder.resolve().name,
        architecture=architecture,
        max_context_tokens=config.max_context_tokens,
    )


def _import_torch() -> ModuleType:
    # Threads that spin while they wait starve the event loop and each other on a machine with few cores: a step took 3 to
    # 24 times as long on two busy ones. OpenMP reads this when torch is loaded; a user's own setting wins.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    return torch


@functools.cache
def _has_library() -> bool:
    try:
        load_library()
    except EngineError as error:
        _log.warning("models run on the slower torch path: %s", error)
        return False
    return True


def _divisors(file: GgufFile) -> tuple[float, ...]:
    """Read the factors by which a file with Llama 3.1's scaling divides its rotary frequencies."""
    shape = file.shape("rope_freqs.weight")
    if shape is None:
        return ()
    if len(shape) != 1 or shape[0] > 4096:
        raise ModelFileError(f"{file.path}: rope_freqs.weight has the impossible shape {list(shape)}")
    if file.tensors["rope_freqs.weight"].type != GGMLQuantizationType.F32:
        raise ModelFileError(f"{file.path}: rope_freqs.weight is not of type F32")
    divisors = file.read_raw("rope_freqs.weight").view(np.float32).astype(np.float64)
    if not bool(((divisors > 0) & np.isfinite(divisors)).all()):
        raise ModelFileError(
            f"{file.path}: rope_freqs.weight holds {shorten(divisors.tolist())} that are not all positive"
        )
    return tuple(divisors.tolist())


def _check_vocabulary(path: Path, tokenizer: Tokenizer, num_rows: int) -> None:
    if tokenizer.vocab_size > num_rows:
        raise ModelFileError(
            f"{path}: its tokenizer has {tokenizer.vocab_size} tokens and its embedding only {num_rows} rows"
        )
    if not tokenizer.eos_token_ids:
        raise ModelFileError(f"{path}: states no end-of-text token, so no answer of it would end")
