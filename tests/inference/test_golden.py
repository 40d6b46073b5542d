"""The default model's answers against Hugging Face transformers', recorded by scripts/make_golden.py.

The reference ran in float32 on the same file's weights. Logits of a row agree when the largest difference is
below 1e-3 of the row's largest absolute logit; tokens, where the reference's own lead over the runner-up is
more than what that allows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentrt.inference.weights import LoadedModel, load_model
from tests.support.paged_batches import PagedSequences

GOLDEN = Path(__file__).parent / "golden" / "smollm2_135m_q4_1"
RECORD: dict[str, Any] = json.loads(GOLDEN.with_suffix(".json").read_text(encoding="ascii"))
TOLERANCE = 1e-3
PROMPTS = sorted(RECORD["prompts"])

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(GOLDEN.with_suffix(".npz")) as file:
        return dict(file)


@pytest.fixture(scope="module")
def loaded(model_path: Path) -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_model(model_path, dtype=torch.float32)
    torch.set_num_threads(threads)


def test_the_record_is_of_the_file_in_the_catalog(model_path: Path) -> None:
    """The reference ran on the very file that is pulled."""
    assert hashlib.sha256(model_path.read_bytes()).hexdigest() == RECORD["model_sha256"]
    assert RECORD["versions"]["transformers"].startswith("5.")


@pytest.mark.parametrize("name", PROMPTS)
def test_logits_agree_with_transformers(loaded: LoadedModel, arrays: dict[str, np.ndarray], name: str) -> None:
    """At every position the logits of the top eight tokens and of 128 fixed ones are within 1e-3 of the row's
    largest, and the best token is the same."""
    ids = RECORD["prompts"][name]
    logits = PagedSequences(loaded.model).compute({"a": ids})["a"].numpy()
    largest = arrays[f"{name}.max_abs"]
    top_ids = arrays[f"{name}.top_ids"]
    for own, reference in (
        (logits[:, arrays["sampled_ids"]], arrays[f"{name}.sampled_logits"]),
        (np.take_along_axis(logits, top_ids.astype(np.int64), axis=1), arrays[f"{name}.top_logits"]),
    ):
        assert (np.abs(own - reference).max(axis=1) / largest).max() < TOLERANCE
    assert (np.abs(np.abs(logits).max(axis=1) - largest) / largest).max() < TOLERANCE
    leads = arrays[f"{name}.top_logits"][:, 0] - arrays[f"{name}.top_logits"][:, 1]
    clear = leads > 2 * TOLERANCE * largest
    assert (logits.argmax(axis=1) == top_ids[:, 0])[clear].all()
    assert clear.mean() > 0.9


def test_greedy_answers_agree_with_transformers(loaded: LoadedModel) -> None:
    """All prompts continued together, 48 tokens each, give the reference's tokens; they may part only where
    the reference itself had less than 0.05 between its two best."""
    sequences = PagedSequences(loaded.model)
    answers: dict[str, list[int]] = {name: [] for name in PROMPTS}
    step = {name: list(RECORD["prompts"][name]) for name in PROMPTS}
    for _ in range(len(RECORD["greedy"][PROMPTS[0]]["ids"])):
        step = {name: [int(logits[-1].argmax())] for name, logits in sequences.compute(step).items()}
        for name, (token_id,) in step.items():
            answers[name].append(token_id)
    for name, answer in answers.items():
        reference = RECORD["greedy"][name]
        pairs = zip(answer, reference["ids"], reference["margins"], strict=True)
        lead_at_parting = next((lead for own, other, lead in pairs if own != other), 0.0)
        assert lead_at_parting < 0.05, name


@pytest.mark.parametrize("case", RECORD["tokenized"], ids=lambda case: repr(case["text"][:24]))
def test_text_is_tokenised_as_the_models_own_tokenizer_does(loaded: LoadedModel, case: dict[str, Any]) -> None:
    """Digits, scripts, emoji, control characters and runs of white space become the reference's ids and come
    back."""
    ids = loaded.tokenizer.encode(case["text"], allow_special=False)
    assert ids == case["ids"]
    assert b"".join(map(loaded.tokenizer.token_bytes, ids)).decode() == case["text"]


@dataclass(frozen=True)
class Said:
    role: str
    content: str


@pytest.mark.parametrize("name", sorted(RECORD["chats"]))
def test_chats_are_rendered_and_encoded_as_transformers_does(loaded: LoadedModel, name: str) -> None:
    """The template's text, default system message included, and its ids are the reference's."""
    chat = RECORD["chats"][name]
    messages = [Said(**message) for message in chat["messages"]]
    assert loaded.chat_template.render(messages) == chat["rendered"]
    assert loaded.chat_template.encode_chat(loaded.tokenizer, messages) == chat["ids"]


def test_the_file_says_how_its_answers_end(loaded: LoadedModel) -> None:
    """<|im_end|> ends an answer, and so does the end of a document."""
    assert loaded.tokenizer.eos_token_ids == {0, 2}
    assert loaded.max_context_tokens == 8192
    assert (loaded.architecture, loaded.model.vocab_size, loaded.tokenizer.vocab_size) == ("llama", 49152, 49152)
