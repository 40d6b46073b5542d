"""The shape of a Llama model, as a GGUF file's metadata or a Hugging Face config.json states it.

Whatever would change the computation and is not computed here is refused by name: a model that is run without
its biases or its scaling still answers, only wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrt.errors import ModelFileError
from agentrt.inference.file_fields import Fields
from agentrt.inference.models.rotary import Llama3Scaling, Rotary

MAX_CONTEXT_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context_tokens: int
    norm_eps: float
    rotary: Rotary


def llama_config_from_gguf(fields: Fields, *, vocab_size: int, divisors: tuple[float, ...]) -> LlamaConfig:
    """Read the `llama.*` metadata. ``divisors`` are those of the file's `rope_freqs.weight`, () without one.

    Raises:
        ModelFileError: a value is missing, impossible, or of a variant that is not supported.
    """
    if fields.integer("llama.expert_count", 0):
        raise fields.error("llama.expert_count", "mixtures of experts are not supported")
    if "llama.attention.sliding_window" in fields and fields.integer("llama.attention.sliding_window"):
        raise fields.error("llama.attention.sliding_window", "sliding-window attention is not supported")
    hidden_size = fields.integer("llama.embedding_length", low=1)
    num_heads = fields.integer("llama.attention.head_count", low=1)
    head_dim = fields.integer("llama.attention.key_length", hidden_size // num_heads, low=1)
    if fields.integer("llama.attention.value_length", head_dim) != head_dim:
        raise fields.error("llama.attention.value_length", f"{head_dim}, the length of keys, is expected")
    if fields.integer("llama.rope.dimension_count", head_dim) != head_dim:
        raise fields.error(
            "llama.rope.dimension_count",
            f"{head_dim} is expected; rotating a part of a head is not supported",
        )
    scaling = fields.text("llama.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise fields.error("llama.rope.scaling.type", "the supported scalings are none, linear and llama3's factors")
    linear_factor = fields.number("llama.rope.scaling.factor", 1.0, low=1e-6) if scaling == "linear" else 1.0
    config = LlamaConfig(
        num_layers=fields.integer("llama.block_count", low=1),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=fields.integer("llama.attention.head_count_kv", num_heads, low=1),
        head_dim=head_dim,
        ffn_size=fields.integer("llama.feed_forward_length", low=1),
        vocab_size=vocab_size,
        max_context_tokens=fields.integer("llama.context_length", low=1, high=MAX_CONTEXT_TOKENS),
        norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon", high=1.0),
        rotary=Rotary(
            head_dim,
            fields.number("llama.rope.freq_base", 10_000.0, low=1e-6),
            linear_factor=linear_factor,
            divisors=divisors,
        ),
    )
    return _checked(config, fields)


def llama_config_from_json(fields: Fields) -> LlamaConfig:
    """Read a config.json of model type `llama`, or of `mistral` without a sliding window.

    Raises:
        ModelFileError: a value is missing, impossible, or of a variant that is not supported.
    """
    for key in ("attention_bias", "mlp_bias"):
        if fields.boolean(key, False):
            raise fields.error(key, "biases are not supported")
    if fields.text("hidden_act", "silu") != "silu":
        raise fields.error("hidden_act", "silu is expected")
    if "sliding_window" in fields:
        raise fields.error("sliding_window", "sliding-window attention is not supported")
    if "quantization_config" in fields:
        raise fields.error("quantization_config", "quantised folders are not supported; use a GGUF file")
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        raise fields.error("partial_rotary_factor", "rotating a part of a head is not supported")
    hidden_size = fields.integer("hidden_size", low=1)
    num_heads = fields.integer("num_attention_heads", low=1)
    head_dim = fields.integer("head_dim", hidden_size // num_heads, low=1)
    config = LlamaConfig(
        num_layers=fields.integer("num_hidden_layers", low=1),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", num_heads, low=1),
        head_dim=head_dim,
        ffn_size=fields.integer("intermediate_size", low=1),
        vocab_size=fields.integer("vocab_size", low=1),
        max_context_tokens=fields.integer("max_position_embeddings", low=1, high=MAX_CONTEXT_TOKENS),
        norm_eps=fields.number("rms_norm_eps", 1e-6, high=1.0),
        rotary=_rotary_from_json(fields, head_dim),
    )
    return _checked(config, fields)


def _rotary_from_json(fields: Fields, head_dim: int) -> Rotary:
    """Read `rope_parameters`, as transformers 5 writes them, or `rope_theta` and `rope_scaling`."""
    theta = fields.number("rope_theta", 10_000.0, low=1e-6)
    key = next((key for key in ("rope_parameters", "rope_scaling") if key in fields), None)
    if key is None:
        return Rotary(head_dim, theta)
    scaling = fields.fields(key)
    theta = scaling.number("rope_theta", theta, low=1e-6)
    name = "rope_type" if "rope_type" in scaling or "type" not in scaling else "type"
    match scaling.text(name, "default"):
        case "default":
            return Rotary(head_dim, theta)
        case "linear":
            return Rotary(head_dim, theta, linear_factor=scaling.number("factor", low=1e-6))
        case "llama3":
            llama3 = Llama3Scaling(
                factor=scaling.number("factor", low=1e-6),
                low_freq_factor=scaling.number("low_freq_factor"),
                high_freq_factor=scaling.number("high_freq_factor"),
                original_context_tokens=scaling.integer("original_max_position_embeddings", low=1),
            )
            if llama3.high_freq_factor <= llama3.low_freq_factor:
                raise scaling.error("high_freq_factor", f"more than {llama3.low_freq_factor:g} is expected")
            return Rotary(head_dim, theta, llama3=llama3)
    raise scaling.error(name, "the supported scalings are default, linear and llama3")


def _checked(config: LlamaConfig, fields: Fields) -> LlamaConfig:
    if config.num_heads % config.num_kv_heads:
        raise ModelFileError(
            f"{fields.path}: {config.num_heads} heads cannot share {config.num_kv_heads} key heads evenly"
        )
    if config.head_dim % 2:
        raise ModelFileError(f"{fields.path}: a head of {config.head_dim} values cannot be rotated; it is odd")
    if config.rotary.divisors and len(config.rotary.divisors) != config.head_dim // 2:
        raise ModelFileError(
            f"{fields.path}: rope_freqs.weight has {len(config.rotary.divisors)} values; "
            f"{config.head_dim // 2} are expected"
        )
    return config
