"""ForwardModels that say what a test tells them to, or stop where it wants them to: for tests of what the engine does
with a model's words, never of a model."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import torch

from agentrt.inference.forward import ForwardBatch, ForwardModel, KVTensors


class RecitingModel:
    """Says ``script[n]`` after a sequence's n-th token, for every sequence.

    ``damaged``: after the n-th token its logits are this value, which is no number to choose by. ``raises``: what
    computing fails with.
    """

    num_layers = 1
    num_kv_heads = 1
    head_dim = 1
    max_context_tokens = 256
    dtype = torch.float32

    def __init__(
        self,
        script: Sequence[int],
        *,
        vocab_size: int,
        damaged: Mapping[int, float] | None = None,
        raises: Exception | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.raises = raises
        self._script = script
        self._damaged = damaged or {}

    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        if self.raises is not None:
            raise self.raises
        logits = torch.zeros(len(batch.logits_rows), self.vocab_size)
        for row, position in enumerate(batch.positions[batch.logits_rows].tolist()):
            logits[row, self._script[position % len(self._script)]] = 9.0
            if position in self._damaged:
                logits[row] = self._damaged[position]
        return logits


class GatedModel:
    """Computes with another model, but each step only after the test has let it."""

    def __init__(self, model: ForwardModel) -> None:
        self._model = model
        self._permits = threading.Semaphore(0)
        self._is_open = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def let(self, num_steps: int) -> None:
        self._permits.release(num_steps)

    def open(self) -> None:
        """Let all further steps go."""
        self._is_open = True
        self._permits.release()

    def forward(self, batch: ForwardBatch, kv: KVTensors) -> torch.Tensor:
        if not self._is_open:
            assert self._permits.acquire(timeout=30), "a step waits for a permit that never comes"
        return self._model.forward(batch, kv)
