"""What all tests of the engine share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny models on several threads are slower, and where cores are busy, by ten times."""
    torch.set_num_threads(1)
