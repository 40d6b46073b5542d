"""The Llama architecture (Touvron et al., 2023) over the paged cache, in plain torch.

RMSNorm, rotary positions, grouped-query attention and SwiGLU; no biases. Matrices that read the same input
are kept as one (query, key and value; gate and up), which halves the number of calls a layer makes: at one
row a step the calls cost as much as the memory traffic. Every row is computed from its own inputs and its own
sequence's slots alone, so batching and chunking change a result by rounding only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import linear, silu

from agentrt.inference.forward import ForwardBatch, KVTensors
from agentrt.inference.models.llama_config import LlamaConfig
from agentrt.inference.models.paged_attention import AttentionPlan, attend, plan_attention
from agentrt.inference.models.rotation import rotate


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """Weights of one layer; matrices are [outputs, inputs].

    qkv: [(num_heads + 2 * num_kv_heads) * head_dim, hidden_size], query rows first, then key, then value
    gate_up: [2 * ffn_size, hidden_size], gate rows first
    """

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    attention_output: torch.Tensor
    ffn_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """All weights, of one dtype. ``head`` is ``embedding`` itself when they are tied."""

    embedding: torch.Tensor
    layers: Sequence[LlamaLayer]
    norm: torch.Tensor
    head: torch.Tensor


class LlamaModel:
    """A ForwardModel. It holds no state but its weights, so several threads may call it on caches of their
    own."""

    def __init__(self, config: LlamaConfig, weights: LlamaWeights) -> None:
        self.config = config
        self._weights = weights
        self._frequencies = torch.from_numpy(config.rotary.frequencies())
        self._wide = torch.promote_types(self.dtype, torch.float32)

    @property
    def num_layers(self) -> int:
        return self.config.num_layers

    @property
    def num_kv_heads(self) -> int:
        return self.config.num_kv_heads

    @property
    def head_dim(self) -> int:
        return self.config.head_dim

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_context_tokens(self) -> int:
        return self.config.max_context_tokens

    @property
    def dtype(self) -> torch.dtype:
        return self._weights.embedding.dtype

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        """Compute one step; see ForwardModel. Raises nothing for a batch that keeps its contract."""
        angles = (batch.positions.to(torch.float64).unsqueeze(1) * self._frequencies).unsqueeze(1)
        cosines, sines = angles.cos().to(self._wide), angles.sin().to(self._wide)
        plan = plan_attention(batch.sequences, kv, self.config.num_heads)
        slots_shape = (-1, self.num_kv_heads, self.head_dim)
        hidden = self._weights.embedding.index_select(0, batch.token_ids)
        for index, layer in enumerate(self._weights.layers):
            keys, values = kv.keys[index].view(slots_shape), kv.values[index].view(slots_shape)
            normed = self._norm(hidden, layer.attention_norm)
            attended = self._attention(normed, layer, batch.slots, keys, values, cosines, sines, plan)
            hidden = hidden + linear(attended, layer.attention_output)
            gate, up = linear(self._norm(hidden, layer.ffn_norm), layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + linear(silu(gate) * up, layer.down)
        wanted = self._norm(hidden.index_select(0, batch.logits_rows), self._weights.norm)
        return linear(wanted, self._weights.head).to(self._wide)

    def _attention(
        self,
        normed: torch.Tensor,
        layer: LlamaLayer,
        slots: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        plan: AttentionPlan,
    ) -> torch.Tensor:
        num_heads, num_kv_heads = self.config.num_heads, self.config.num_kv_heads
        heads = linear(normed, layer.qkv).view(normed.shape[0], -1, self.head_dim)
        turned = rotate(heads[:, : num_heads + num_kv_heads], cosines, sines)
        keys.index_copy_(0, slots, turned[:, num_heads:])
        values.index_copy_(0, slots, heads[:, num_heads + num_kv_heads :])
        return attend(turned[:, :num_heads], keys, values, plan)

    def _norm(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = hidden.to(self._wide)
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.norm_eps)
        return (wide * scale).to(hidden.dtype) * weight
