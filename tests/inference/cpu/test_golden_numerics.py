"""The C++ step on the default model against the same weights in float32.

Activations in eight bits and keys in bf16 move logits a little: how much is bounded here. llama.cpp's own results with and
without flash attention differ as much.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from agentrt.inference.config import EngineConfig
from agentrt.inference.cpu.model import CpuModel
from agentrt.inference.cpu.runner import CpuRunner
from agentrt.inference.weights import load_model
from tests.support.paged_batches import PagedSequences

PROMPTS = json.loads((Path(__file__).parent.parent / "golden" / "smollm2_135m_q4_1.json").read_text())["prompts"]


@pytest.mark.model
@pytest.mark.timeout(300)
def test_the_default_model_stays_near_float32(model_path: Path) -> None:
    """Mean KL below 0.01, the same likeliest token at 95 % of positions, another one only where float32 is undecided.

    There is one exception: the fifth token of one text, where float32 prefers its token by 1.1.
    """
    wide = load_model(model_path, dtype=torch.float32).model
    model = load_model(model_path).model
    assert isinstance(model, CpuModel)
    assert not isinstance(wide, CpuModel)
    runner = CpuRunner(model, EngineConfig(num_blocks=128, num_threads=2), model.vocab_size)
    divergences, agreements, margins = [], [], []
    for ids in PROMPTS.values():
        reference = PagedSequences(wide).compute({"a": ids})["a"].double()
        table = list(range(-(-len(ids) // 16)))
        scores = runner.compute(ids, [0, len(ids)], [0], [table], range(len(ids)), [True] * len(ids))
        logits = torch.from_numpy(np.array([row.logits for row in scores])).double()
        expected, got = reference.log_softmax(-1), logits.log_softmax(-1)
        divergences += (expected.exp() * (expected - got)).sum(-1).tolist()
        agree = expected.argmax(-1) == got.argmax(-1)
        agreements += agree.tolist()
        best_two = reference.topk(2).values
        margins += (best_two[:, 0] - best_two[:, 1])[~agree].tolist()
    assert len(divergences) > 200
    assert np.mean(divergences) < 0.01
    assert np.mean(agreements) >= 0.95
    assert sum(margin >= 0.6 for margin in margins) <= 1
    assert max(margins, default=0.0) < 1.2
