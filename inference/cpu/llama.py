"""A Llama's GGUF file as the C++ step wants it: nothing is dequantised, only named."""

from __future__ import annotations

import numpy as np

from agentrt.inference.cpu.model import CpuDescription, CpuLayer, FileTensor
from agentrt.inference.gguf_file import GgufFile
from agentrt.inference.models.llama_config import LlamaConfig
from agentrt.inference.models.llama_tensors import GGUF_NAMES, check_llama


def describe_llama(file: GgufFile, config: LlamaConfig) -> CpuDescription:
    """Read all weights. Raises ModelFileError: a tensor is missing, of another shape, or not one of this architecture's."""
    names = GGUF_NAMES
    tied = file.shape(names.head) is None
    check_llama(file, config, names, tied=tied)

    def matrix(name: str, index: int = 0) -> FileTensor:
        return read_tensor(file, name.format(index))

    return CpuDescription(
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        ffn_size=config.ffn_size,
        vocab_size=config.vocab_size,
        max_context_tokens=config.max_context_tokens,
        norm_eps=config.norm_eps,
        attention_scale=config.head_dim**-0.5,
        frequencies=config.rotary.frequencies()[np.newaxis],
        layers=[
            CpuLayer(
                attention_norm=matrix(names.attention_norm, index),
                query=matrix(names.query, index),
                key=matrix(names.key, index),
                value=matrix(names.value, index),
                attention_output=matrix(names.attention_output, index),
                ffn_norm=matrix(names.ffn_norm, index),
                gate=matrix(names.gate, index),
                up=matrix(names.up, index),
                down=matrix(names.down, index),
            )
            for index in range(config.num_layers)
        ],
        embedding=matrix(names.embedding),
        norm=matrix(names.norm),
        head=None if tied else matrix(names.head),
        has_paired_rows=True,
    )


def read_tensor(file: GgufFile, name: str) -> FileTensor:
    shape = file.shape(name)
    assert shape is not None, f"{name} was not checked"
    rows, cols = shape if len(shape) == 2 else (1, *shape)
    return FileTensor(file.read_raw(name), int(file.tensors[name].type), rows, cols)
