"""Loading a model: the same one from every form it comes in, and one line for what cannot be loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from agentrt.errors import ModelFileError
from agentrt.inference.models.rotary import Llama3Scaling, Rotary
from agentrt.inference.weights import LoadedModel, load_model
from tests.support.model_files import CHATML, TinyShape, vocabulary, write_tiny_folder, write_tiny_gguf
from tests.support.paged_batches import PagedSequences

IDS = [5, 100, 200, 7, 262, 267]


def logits_of(loaded: LoadedModel) -> torch.Tensor:
    torch.set_num_threads(1)
    return PagedSequences(loaded.model).compute({"a": IDS})["a"]


@pytest.mark.parametrize("shape", [TinyShape(), TinyShape(tied=False)], ids=["tied", "own head"])
def test_a_gguf_file_and_a_folder_of_the_same_weights_are_the_same_model(tmp_path: Path, shape: TinyShape) -> None:
    """The rows GGUF interleaves come back into the order of the folder: both give the same logits, to the bit."""
    write_tiny_gguf(tmp_path / "m.gguf", shape=shape)
    write_tiny_folder(tmp_path / "folder", shape=shape)
    write_tiny_folder(tmp_path / "sharded", shape=shape, num_files=3)
    first, *others = [load_model(tmp_path / name, dtype=torch.float32) for name in ("m.gguf", "folder", "sharded")]
    for other in others:
        assert torch.equal(logits_of(first), logits_of(other))
        assert other.tokenizer.encode("hello world", allow_special=False) == first.tokenizer.encode(
            "hello world", allow_special=False
        )
        assert other.tokenizer.eos_token_ids == first.tokenizer.eos_token_ids == {0, 2}
    assert (first.name, others[0].name) == ("Tiny", "folder")
    assert first.architecture == "llama"
    assert first.max_context_tokens == first.model.max_context_tokens == 512


def test_weights_are_held_in_the_dtype_asked_for(tmp_path: Path) -> None:
    """Each supported dtype is what every weight has; a folder in bfloat16 loads as float32 without a change of value."""
    write_tiny_folder(tmp_path / "folder")
    stored = {
        name: torch.from_numpy(array).to(torch.bfloat16)
        for name, array in _read_safetensors(tmp_path / "folder" / "model.safetensors").items()
    }
    save_file(stored, tmp_path / "folder" / "model.safetensors")
    narrow = logits_of(load_model(tmp_path / "folder", dtype=torch.float32))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        loaded = load_model(tmp_path / "folder", dtype=dtype)
        assert loaded.model.dtype is dtype
        assert logits_of(loaded).dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    torch.testing.assert_close(
        narrow.double(), logits_of(load_model(tmp_path / "folder", dtype=torch.float64)), rtol=1e-4, atol=1e-4
    )


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def test_llama_3_scaling_is_the_same_from_a_config_and_from_a_gguf_files_divisors(tmp_path: Path) -> None:
    """A config's llama3 scaling and the divisors a converter writes for it into a GGUF file give the same logits."""
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_tokens=64)
    plain = Rotary(16, 10_000.0).frequencies()
    divisors = (plain / Rotary(16, 10_000.0, llama3=scaling).frequencies()).astype(np.float32)
    write_tiny_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": divisors})
    stated = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    write_tiny_folder(tmp_path / "old", config={"rope_scaling": stated})
    write_tiny_folder(
        tmp_path / "new", config={"rope_theta": None, "rope_parameters": {**stated, "rope_theta": 10_000.0}}
    )
    write_tiny_folder(tmp_path / "plain")
    expected = logits_of(load_model(tmp_path / "m.gguf", dtype=torch.float64))
    for name in ("old", "new"):
        torch.testing.assert_close(
            logits_of(load_model(tmp_path / name, dtype=torch.float64)), expected, rtol=1e-4, atol=1e-4
        )
    unscaled = logits_of(load_model(tmp_path / "plain", dtype=torch.float64))
    assert not torch.allclose(unscaled, expected, rtol=1e-2, atol=1e-2)


def test_linear_scaling_is_read_from_both_forms(tmp_path: Path) -> None:
    """A linear factor means the same in a GGUF file and in a config."""
    write_tiny_gguf(
        tmp_path / "m.gguf", metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    )
    write_tiny_folder(tmp_path / "folder", config={"rope_scaling": {"type": "linear", "factor": 4.0}})
    assert torch.equal(
        logits_of(load_model(tmp_path / "m.gguf", dtype=torch.float32)), logits_of(load_model(tmp_path / "folder"))
    )


def failure(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"general.architecture": "mamba"}, "'mamba': the supported architectures are llama"),
        ({"llama.block_count": 3}, "lacks the tensor blk.2.attn_norm.weight"),
        ({"llama.block_count": 1}, "holds the tensor 'blk.1"),
        ({"llama.block_count": 4_000_000_000}, "llama.block_count = 4000000000: a whole number from 1"),
        ({"llama.block_count": 2_000_000_000}, "states 2000000000 layers and holds only"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": "two"}, "llama.block_count = 'two': a whole number is expected"),
        ({"llama.feed_forward_length": 128}, "blk.0.ffn_gate.weight has the shape [96, 64]; [128, 64] is expected"),
        ({"llama.attention.head_count": 0}, "a whole number from 1"),
        ({"llama.attention.head_count": [4, 4]}, "a whole number is expected"),
        ({"llama.attention.head_count_kv": 3}, "4 heads cannot share 3 key heads evenly"),
        ({"llama.attention.value_length": 8}, "16, the length of keys, is expected"),
        ({"llama.rope.dimension_count": 8}, "rotating a part of a head is not supported"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn': the supported scalings are"),
        ({"llama.rope.freq_base": float("nan")}, "a number from"),
        ({"llama.expert_count": 8}, "mixtures of experts are not supported"),
        ({"llama.attention.sliding_window": 4096}, "sliding-window attention is not supported"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon is missing"),
        ({"split.count": 2}, "split files are not supported"),
        ({"tokenizer.ggml.tokens": [*vocabulary(), "extra"], "tokenizer.ggml.token_type": None}, "only 273 rows"),
        ({"tokenizer.ggml.eos_token_id": None, "tokenizer.ggml.token_type": None}, "no end-of-text token"),
        ({"tokenizer.chat_template": None}, "has no chat template"),
        ({"tokenizer.chat_template": "{% for %}"}, "its chat template is not valid (line 1)"),
    ],
)
def test_a_gguf_file_that_cannot_be_run_is_one_line_with_what_was_found(
    tmp_path: Path, metadata: dict[str, Any], says: str
) -> None:
    """What a file states and this cannot compute is refused by name, before weights are read."""
    write_tiny_gguf(tmp_path / "m.gguf", metadata=metadata)
    assert says in failure(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("blk.0.attn_q.bias", 64, "biases are not supported"),
        ("blk.0.attn_q_norm.weight", 16, "it is no part of a Llama model"),
        ("rope_freqs.weight", 7, "rope_freqs.weight has 7 values; 8 are expected"),
    ],
)
def test_a_tensor_that_would_change_the_result_is_not_ignored(tmp_path: Path, name: str, size: int, says: str) -> None:
    """A tensor this does not compute with is refused; running without it would give wrong answers."""
    write_tiny_gguf(tmp_path / "m.gguf", extra={name: np.ones(size, np.float32)})
    assert says in failure(tmp_path / "m.gguf")


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf")])
def test_divisors_that_cannot_divide_are_refused(tmp_path: Path, value: float) -> None:
    """Rotary divisors that are not positive numbers are damage, not a scaling."""
    write_tiny_gguf(tmp_path / "m.gguf", extra={"rope_freqs.weight": np.full(8, value, np.float32)})
    assert "rope_freqs.weight" in failure(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "qwen3"}, "'qwen3': the supported model types are llama, mistral"),
        ({"model_type": None}, "model_type is missing"),
        ({"attention_bias": True}, "biases are not supported"),
        ({"mlp_bias": True}, "biases are not supported"),
        ({"hidden_act": "gelu"}, "silu is expected"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding-window attention is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised folders are not supported"),
        ({"partial_rotary_factor": 0.5}, "rotating a part of a head is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling.rope_type = 'yarn': the supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "rope_scaling.low_freq_factor is missing"),
        ({"rope_scaling": "linear"}, "an object is expected"),
        ({"num_hidden_layers": 3}, "lacks the tensor model.layers.2.input_layernorm.weight"),
        ({"num_hidden_layers": -1}, "a whole number from 1"),
        ({"tie_word_embeddings": False}, "lacks the tensor lm_head.weight"),
        ({"tie_word_embeddings": "no"}, "true or false is expected"),
        ({"head_dim": 15}, "a head of 15 values cannot be rotated"),
        ({"vocab_size": 300}, "has the shape [273, 64]; [300, 64] is expected"),
        ({"eos_token_id": 9999}, "an id below 273 is expected, not 9999"),
        ({"eos_token_id": "</s>"}, "a token id, or a list of them, is expected"),
    ],
)
def test_a_folder_that_cannot_be_run_is_one_line_with_what_was_found(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    """What a config.json states and this cannot compute is refused by name, before weights are read."""
    write_tiny_folder(tmp_path / "m", config=config)
    assert says in failure(tmp_path / "m")


def test_mistral_without_a_window_and_old_checkpoints_extra_tensors_load(tmp_path: Path) -> None:
    """Mistral folders without a sliding window, and tensors that only repeat the config, are no obstacle."""
    write_tiny_folder(
        tmp_path / "m",
        config={"model_type": "mistral", "sliding_window": None},
        extra={
            "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),
            "lm_head.weight": np.zeros((273, 64), np.float32),
        },
    )
    assert load_model(tmp_path / "m").architecture == "mistral"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: (m / "config.json").unlink(), "config.json: cannot be read: No such file"),
        (lambda m: (m / "config.json").write_text("[1]"), "a JSON object is expected, not list"),
        (lambda m: (m / "config.json").write_text("{"), "is not JSON"),
        (lambda m: (m / "config.json").write_text("[" * 100_000), "is not JSON"),
        (lambda m: (m / "config.json").write_bytes(b"\xff\xfe{}"), "is not JSON"),
        (lambda m: (m / "tokenizer.json").unlink(), "tokenizer.json: cannot be read: No such file"),
        (lambda m: (m / "tokenizer.json").write_text('{"model": 3}'), "is neither a byte-level"),
        (lambda m: (m / "tokenizer_config.json").write_text("{}"), "has no chat template"),
        (lambda m: (m / "model.safetensors").write_bytes(b""), "is cut short or damaged"),
        (lambda m: _cut(m / "model.safetensors", 0.5), "is cut short or damaged"),
        (lambda m: _cut(m / "model.safetensors", 0.001), "is cut short or damaged"),
        (lambda m: (m / "model.safetensors").rename(m / "pytorch_model.bin"), "is pickled and never loaded"),
        (lambda m: (m / "model.safetensors").unlink(), "model.safetensors or model.safetensors.index.json is expected"),
    ],
)
def test_a_folder_with_a_file_missing_or_damaged_is_one_line(tmp_path: Path, change: Any, says: str) -> None:
    """Every file of a folder may be missing, cut or something else, and is then named with what is wrong."""
    write_tiny_folder(tmp_path / "m")
    change(tmp_path / "m")
    assert says in failure(tmp_path / "m")


@pytest.mark.parametrize(
    ("weight_map", "says"),
    [
        ({"a": "../../etc/passwd"}, "is not the name of a safetensors file beside it"),
        ({"a": "model.bin"}, "is not the name of a safetensors file beside it"),
        ({"a": "absent.safetensors"}, "absent.safetensors: is missing"),
        ({"a": "w.safetensors"}, "tensor 'a' is in none of the files"),
        ([], "an object is expected"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path: Path, weight_map: Any, says: str) -> None:
    """An index names only safetensors beside it, all there and holding what it says."""
    write_tiny_folder(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "w.safetensors")
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert says in failure(tmp_path / "m")


def _cut(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pytorch_model.bin", "pickled files are never loaded"),
        ("model.pt", "pickled files are never loaded"),
        ("model.safetensors", "name the folder"),
        ("absent.gguf", "No such file or directory"),
    ],
)
def test_a_path_that_is_no_model_says_what_to_give_instead(tmp_path: Path, name: str, says: str) -> None:
    """Files that are not loaded are refused by their kind, with what to use."""
    if not name.startswith("absent"):
        (tmp_path / name).write_bytes(b"\x80\x02")
    assert says in failure(tmp_path / name)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """A pickle that would run code when loaded is refused without running it, whatever it is called."""
    pickle_that_touches = b"cos\nsystem\n(S'touch %s'\ntR." % str(tmp_path / "ran").encode()
    for name in ("model.gguf", "model.bin"):
        (tmp_path / name).write_bytes(pickle_that_touches)
        failure(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_the_tiny_models_template_is_the_files_own(tiny_gguf: Path) -> None:
    """The chat template comes from the file."""
    assert load_model(tiny_gguf).chat_template.source == CHATML
