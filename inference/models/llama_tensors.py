"""What the tensors of a Llama are called, and whether a file has them all, in the right shapes, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentrt.errors import ModelFileError
from agentrt.inference.file_fields import shorten
from agentrt.inference.models.llama_config import LlamaConfig

if TYPE_CHECKING:
    import torch


class TensorFile(Protocol):
    """A file of named tensors, open."""

    path: Path

    @property
    def tensors(self) -> Mapping[str, object]: ...

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape, or None when there is no such tensor."""
        ...

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Read a tensor into ``out``, contiguous and of as many elements, converted to its dtype."""
        ...


@dataclass(frozen=True, slots=True)
class LlamaNames:
    """What a file format calls the tensors; ``{}`` stands for the layer.

    ``interleaved``: rows of query and key are stored in pairs (rotated value next to its partner), as GGUF
    does, and are put into the half-split order here. ``ignored``: ends of names of tensors that say nothing
    the config does not.
    """

    embedding: str
    norm: str
    head: str
    attention_norm: str
    query: str
    key: str
    value: str
    attention_output: str
    ffn_norm: str
    gate: str
    up: str
    down: str
    interleaved: bool
    ignored: tuple[str, ...]


GGUF_NAMES = LlamaNames(
    embedding="token_embd.weight",
    norm="output_norm.weight",
    head="output.weight",
    attention_norm="blk.{}.attn_norm.weight",
    query="blk.{}.attn_q.weight",
    key="blk.{}.attn_k.weight",
    value="blk.{}.attn_v.weight",
    attention_output="blk.{}.attn_output.weight",
    ffn_norm="blk.{}.ffn_norm.weight",
    gate="blk.{}.ffn_gate.weight",
    up="blk.{}.ffn_up.weight",
    down="blk.{}.ffn_down.weight",
    interleaved=True,
    ignored=("rope_freqs.weight",),
)
SAFETENSORS_NAMES = LlamaNames(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    head="lm_head.weight",
    attention_norm="model.layers.{}.input_layernorm.weight",
    query="model.layers.{}.self_attn.q_proj.weight",
    key="model.layers.{}.self_attn.k_proj.weight",
    value="model.layers.{}.self_attn.v_proj.weight",
    attention_output="model.layers.{}.self_attn.o_proj.weight",
    ffn_norm="model.layers.{}.post_attention_layernorm.weight",
    gate="model.layers.{}.mlp.gate_proj.weight",
    up="model.layers.{}.mlp.up_proj.weight",
    down="model.layers.{}.mlp.down_proj.weight",
    interleaved=False,
    ignored=(".rotary_emb.inv_freq",),
)


def check_llama(file: TensorFile, config: LlamaConfig, names: LlamaNames, *, tied: bool) -> None:
    """Raise ModelFileError unless all tensors are there, in the right shapes, and no others."""
    # Every layer has nine tensors, so a damaged number of layers ends here and not in a long list of expected
    # names.
    if config.num_layers > len(file.tensors):
        raise ModelFileError(
            f"{file.path}: states {config.num_layers} layers and holds only {len(file.tensors)} tensors"
        )
    expected = dict(_expected(config, names, tied=tied))
    for name, shape in expected.items():
        found = file.shape(name)
        if found is None:
            raise ModelFileError(f"{file.path}: lacks the tensor {name}")
        if found != shape:
            raise ModelFileError(f"{file.path}: {name} has the shape {list(found)}; {list(shape)} is expected")
    ignored = (*names.ignored, names.head) if tied else names.ignored
    for name in file.tensors:
        if name not in expected and not name.endswith(ignored):
            kind = "biases are not supported" if name.endswith(".bias") else "it is no part of a Llama model"
            raise ModelFileError(f"{file.path}: holds the tensor {shorten(name)}: {kind}")


def _expected(config: LlamaConfig, names: LlamaNames, *, tied: bool) -> Iterable[tuple[str, tuple[int, ...]]]:
    hidden, query_size, kv_size = config.hidden_size, *attention_sizes(config)
    yield names.embedding, (config.vocab_size, hidden)
    yield names.norm, (hidden,)
    if not tied:
        yield names.head, (config.vocab_size, hidden)
    for index in range(config.num_layers):
        yield names.attention_norm.format(index), (hidden,)
        yield names.query.format(index), (query_size, hidden)
        yield names.key.format(index), (kv_size, hidden)
        yield names.value.format(index), (kv_size, hidden)
        yield names.attention_output.format(index), (hidden, query_size)
        yield names.ffn_norm.format(index), (hidden,)
        yield names.gate.format(index), (config.ffn_size, hidden)
        yield names.up.format(index), (config.ffn_size, hidden)
        yield names.down.format(index), (hidden, config.ffn_size)


def attention_sizes(config: LlamaConfig) -> tuple[int, int]:
    return config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
