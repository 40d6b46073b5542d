"""A small real model in float64, with random weights, and a tokenizer of its size.

In float64 the rounding of one batch composition or another is far below the distance between two logits, so answers can
be compared token for token.
"""

from __future__ import annotations

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from agentrt.inference.byte_level import BYTE_OF_CHARACTER
from agentrt.inference.models.llama import LlamaLayer, LlamaModel, LlamaWeights
from agentrt.inference.models.llama_config import LlamaConfig
from agentrt.inference.models.rotary import Rotary
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary

END = "<|end|>"
PIECES = ("th", "the", " t", " th", " the", "an", " a", "er", "bill", "ing", "billing", " billing", "ref", "und")


def tiny_tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer: the 256 bytes, a few longer pieces, and one control token that ends an answer."""
    character_of = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
    spellings = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in PIECES]
    vocabulary = {"".join(character_of[byte] for byte in spelling): index for index, spelling in enumerate(spellings)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end_id = len(spellings)
    return Tokenizer(
        tokenizer,
        Vocabulary([*spellings, END.encode()], [ControlToken(end_id, END)], frozenset({end_id}), eos_token=END),
    )


def tiny_model(*, vocab_size: int = 271, max_context_tokens: int = 256, seed: int = 0) -> LlamaModel:
    """Return a Llama of two layers with random weights, large enough for confident and varied answers."""
    generator = torch.Generator().manual_seed(seed)
    hidden_size, num_heads, num_kv_heads, head_dim, ffn_size = 16, 4, 2, 8, 24

    def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * scale / shape[-1] ** 0.5

    ones = torch.ones(hidden_size, dtype=torch.float64)
    layers = [
        LlamaLayer(
            attention_norm=ones,
            qkv=random((num_heads + 2 * num_kv_heads) * head_dim, hidden_size, scale=2.0),
            attention_output=random(hidden_size, num_heads * head_dim, scale=2.0),
            ffn_norm=ones,
            gate_up=random(2 * ffn_size, hidden_size, scale=2.0),
            down=random(hidden_size, ffn_size, scale=2.0),
        )
        for _ in range(2)
    ]
    config = LlamaConfig(
        num_layers=2,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_size=ffn_size,
        vocab_size=vocab_size,
        max_context_tokens=max_context_tokens,
        norm_eps=1e-5,
        rotary=Rotary(head_dim, 10_000.0),
    )
    weights = LlamaWeights(
        embedding=random(vocab_size, hidden_size, scale=4.0),
        layers=layers,
        norm=ones,
        head=random(vocab_size, hidden_size, scale=8.0),
    )
    return LlamaModel(config, weights)
