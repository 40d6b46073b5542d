"""Filling a Llama model from a file: every tensor checked by name and shape first, then read into its final
place.

Matrices that are kept together are read into parts of one tensor, so that at no time more than one matrix is
held twice.
"""

from __future__ import annotations

import torch

from agentrt.inference.models.llama import LlamaLayer, LlamaModel, LlamaWeights
from agentrt.inference.models.llama_config import LlamaConfig
from agentrt.inference.models.llama_tensors import LlamaNames, TensorFile, attention_sizes, check_llama


def load_llama(
    file: TensorFile, config: LlamaConfig, names: LlamaNames, *, tied: bool, dtype: torch.dtype
) -> LlamaModel:
    """Read all weights as ``dtype``. ``tied``: the output matrix is the embedding, whatever else the file
    holds.

    Raises:
        ModelFileError: a tensor is missing, of another shape, or not one of this architecture's.
    """
    check_llama(file, config, names, tied=tied)

    def read(name: str, *shape: int) -> torch.Tensor:
        out = torch.empty(shape, dtype=dtype)
        file.read_into(name, out)
        return out

    embedding = read(names.embedding, config.vocab_size, config.hidden_size)
    weights = LlamaWeights(
        embedding=embedding,
        layers=[_read_layer(file, config, names, index, dtype) for index in range(config.num_layers)],
        norm=read(names.norm, config.hidden_size),
        head=embedding if tied else read(names.head, config.vocab_size, config.hidden_size),
    )
    return LlamaModel(config, weights)


def _read_layer(file: TensorFile, config: LlamaConfig, names: LlamaNames, index: int, dtype: torch.dtype) -> LlamaLayer:
    def read(name: str, out: torch.Tensor) -> torch.Tensor:
        file.read_into(name.format(index), out)
        return out

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    hidden, query_size, kv_size = config.hidden_size, *attention_sizes(config)
    qkv = empty(query_size + 2 * kv_size, hidden)
    query, key, value = torch.split(qkv, [query_size, kv_size, kv_size])
    read(names.query, query)
    read(names.key, key)
    read(names.value, value)
    if names.interleaved:
        _split_halves(query, config.num_heads)
        _split_halves(key, config.num_kv_heads)
    gate_up = empty(2 * config.ffn_size, hidden)
    gate, up = gate_up.chunk(2)
    read(names.gate, gate)
    read(names.up, up)
    return LlamaLayer(
        attention_norm=read(names.attention_norm, empty(hidden)),
        qkv=qkv,
        attention_output=read(names.attention_output, empty(hidden, query_size)),
        ffn_norm=read(names.ffn_norm, empty(hidden)),
        gate_up=gate_up,
        down=read(names.down, empty(hidden, config.ffn_size)),
    )


def _split_halves(matrix: torch.Tensor, num_heads: int) -> None:
    """Reorder the rows of every head, in place, from (0, half, 1, half+1, ...) to (0, 1, ..., half, half+1,
    ...)."""
    pairs = matrix.view(num_heads, -1, 2, matrix.shape[1])
    matrix.copy_(pairs.transpose(1, 2).reshape(matrix.shape))
