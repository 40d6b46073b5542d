"""Real model files, small enough to make in a moment: a Llama of two layers with random weights and a real tokenizer.

The GGUF is written by the `gguf` package's own writer and the folder by `safetensors` and `tokenizers`, so nothing of the
code under test takes part. Both hold the same weights, in the half-split order a reference implementation wants them in:
``weights["layers.0.query"]`` and so on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ a", "Ġ Ġ", "e r", "u s", "us er")
GGUF_NAMES = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "attention_norm": "blk.{}.attn_norm.weight",
    "query": "blk.{}.attn_q.weight",
    "key": "blk.{}.attn_k.weight",
    "value": "blk.{}.attn_v.weight",
    "output": "blk.{}.attn_output.weight",
    "ffn_norm": "blk.{}.ffn_norm.weight",
    "gate": "blk.{}.ffn_gate.weight",
    "up": "blk.{}.ffn_up.weight",
    "down": "blk.{}.ffn_down.weight",
}
FOLDER_NAMES = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attention_norm": "model.layers.{}.input_layernorm.weight",
    "query": "model.layers.{}.self_attn.q_proj.weight",
    "key": "model.layers.{}.self_attn.k_proj.weight",
    "value": "model.layers.{}.self_attn.v_proj.weight",
    "output": "model.layers.{}.self_attn.o_proj.weight",
    "ffn_norm": "model.layers.{}.post_attention_layernorm.weight",
    "gate": "model.layers.{}.mlp.gate_proj.weight",
    "up": "model.layers.{}.mlp.up_proj.weight",
    "down": "model.layers.{}.mlp.down_proj.weight",
}


@dataclass(frozen=True)
class TinyShape:
    num_layers: int = 2
    hidden_size: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    ffn_size: int = 96
    max_context_tokens: int = 512
    theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True


def byte_alphabet() -> list[str]:
    """Return the byte-level alphabet as the `tokenizers` library has it, in the order of bytes."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def vocabulary() -> list[str]:
    return [*CONTROL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]


def random_weights(shape: TinyShape, seed: int = 0) -> dict[str, np.ndarray]:
    """Make weights at which logits differ clearly, so that a greedy choice is one rounding cannot turn."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 1.5 / columns**0.5).astype(np.float32)

    def norm() -> np.ndarray:
        return random.uniform(0.5, 1.5, shape.hidden_size).astype(np.float32)

    query_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    weights = {"embedding": matrix(len(vocabulary()), shape.hidden_size) * 6, "norm": norm()}
    for index in range(shape.num_layers):
        layer = {
            "attention_norm": norm(),
            "query": matrix(query_size, shape.hidden_size),
            "key": matrix(kv_size, shape.hidden_size),
            "value": matrix(kv_size, shape.hidden_size),
            "output": matrix(shape.hidden_size, query_size),
            "ffn_norm": norm(),
            "gate": matrix(shape.ffn_size, shape.hidden_size),
            "up": matrix(shape.ffn_size, shape.hidden_size),
            "down": matrix(shape.hidden_size, shape.ffn_size),
        }
        weights.update({f"layers.{index}.{name}": array for name, array in layer.items()})
    if not shape.tied:
        weights["head"] = matrix(len(vocabulary()), shape.hidden_size)
    return weights


def write_tiny_gguf(
    path: Path,
    *,
    shape: TinyShape | None = None,
    seed: int = 0,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    raw: dict[str, np.ndarray] | None = None,
    metadata: dict[str, Any] | None = None,
    extra: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Write a GGUF file; returns its weights before quantisation.

    ``kind``: how matrices are stored. ``raw``: quantised bytes of matrices by GGUF name, [rows, bytes a row], of ``kind``.
    ``metadata`` replaces fields (None leaves one out); ``extra`` adds tensors, stored as F32.
    """
    shape = shape or TinyShape()
    weights = random_weights(shape, seed)
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {**_metadata(shape), **(metadata or {})}.items():
        _add_field(writer, key, value)
    for name, array in weights.items():
        stored = _gguf_name(name)
        if array.ndim == 2 and name.endswith(("query", "key")):
            array = _interleaved(array, shape.head_dim)
        if raw and stored in raw:
            writer.add_tensor(stored, raw[stored], raw_dtype=kind)
        elif array.ndim == 1 or kind is gguf.GGMLQuantizationType.F32:
            writer.add_tensor(stored, array)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(array, kind), raw_dtype=kind)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def write_tiny_folder(
    folder: Path,
    *,
    shape: TinyShape | None = None,
    seed: int = 0,
    num_files: int = 1,
    config: dict[str, Any] | None = None,
    extra: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Write a Hugging Face folder; returns its weights. ``config`` replaces keys of config.json."""
    shape = shape or TinyShape()
    weights = random_weights(shape, seed)
    folder.mkdir(parents=True, exist_ok=True)
    named = {_folder_name(name): np.ascontiguousarray(array) for name, array in weights.items()} | (extra or {})
    if num_files == 1:
        save_file(named, folder / "model.safetensors")
    else:
        names = [f"model-{number + 1:05}-of-{num_files:05}.safetensors" for number in range(num_files)]
        files = {name: names[number % num_files] for number, name in enumerate(named)}
        for file in set(files.values()):
            save_file({name: array for name, array in named.items() if files[name] == file}, folder / file)
        _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})
    stated = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_context_tokens,
        "rope_theta": shape.theta,
        "rope_scaling": None,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "vocab_size": len(vocabulary()),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    _write_json(folder / "config.json", {**stated, **(config or {})})
    _write_json(
        folder / "tokenizer_config.json",
        {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": CHATML},
    )
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab={text: token_id for token_id, text in enumerate(vocabulary())},
            merges=[(left, right) for left, right in (merge.split(" ") for merge in MERGES)],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.save(str(folder / "tokenizer.json"))
    return weights


def _metadata(shape: TinyShape) -> dict[str, Any]:
    tokens = vocabulary()
    return {
        "general.name": "Tiny",
        "llama.block_count": shape.num_layers,
        "llama.context_length": shape.max_context_tokens,
        "llama.embedding_length": shape.hidden_size,
        "llama.feed_forward_length": shape.ffn_size,
        "llama.attention.head_count": shape.num_heads,
        "llama.attention.head_count_kv": shape.num_kv_heads,
        "llama.attention.key_length": shape.head_dim,
        "llama.attention.value_length": shape.head_dim,
        "llama.rope.freq_base": shape.theta,
        "llama.attention.layer_norm_rms_epsilon": shape.norm_eps,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }


def _add_field(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if key == "general.architecture":
        # The writer has written its own already.
        writer.kv_data[0][key] = gguf.GGUFValue(value, gguf.GGUFValueType.STRING)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _interleaved(matrix: np.ndarray, head_dim: int) -> np.ndarray:
    """Put the rows of each head in the order GGUF keeps them in for a Llama: (0, half, 1, half+1, ...)."""
    half = head_dim // 2
    rows = [row for pair in range(half) for row in (pair, pair + half)]
    return np.concatenate([matrix[first : first + head_dim][rows] for first in range(0, len(matrix), head_dim)])


def _gguf_name(name: str) -> str:
    return _stored_name(name, GGUF_NAMES)


def _folder_name(name: str) -> str:
    return _stored_name(name, FOLDER_NAMES)


def _stored_name(name: str, names: dict[str, str]) -> str:
    parts = name.split(".")
    return names[parts[-1]].format(parts[1]) if parts[0] == "layers" else names[name]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
