"""Prompts of exact lengths, as token ids, made of Python's own docstrings.

Natural text matters: random ids make a model repeat itself and a tokenizer's pieces meet nowhere else. Docstrings come with
every Python, so nothing has to be shipped or fetched; they differ between versions of Python, so figures are compared
within one run.

A server that has seen a prompt answers the second time from its prefix cache. So a source never gives out two prompts that
begin alike, and each run has a source of its own, seeded with its name and turn: every server gets the same prompts, none
gets one twice.
"""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Callable, Sequence

MODULES = (
    "argparse", "asyncio", "collections", "concurrent.futures", "datetime", "decimal", "email.message", "fractions",
    "functools", "http.client", "io", "ipaddress", "itertools", "logging", "pathlib", "random", "shutil", "socket",
    "sqlite3", "statistics", "string", "subprocess", "tarfile", "textwrap", "threading", "unittest",
    "urllib.request", "xml.dom.minidom", "zipfile",
)  # fmt: skip
NUM_DISTINCT = 8
"""No two prompts of a source share their first so many tokens."""


def docstrings(modules: Sequence[str] = MODULES) -> list[str]:
    """Return the docstrings of modules, their classes and methods, each once, sorted."""
    found: set[str] = set()
    for name in modules:
        module = importlib.import_module(name)
        for owner in (module, *(member for member in vars(module).values() if inspect.isclass(member))):
            for member in vars(owner).values():
                text = getattr(member, "__doc__", None)
                if isinstance(text, str) and len(text) > 120:
                    found.add(inspect.cleandoc(text))
    return sorted(found)


def make_corpus(encode: Callable[[str], list[int]], texts: Sequence[str]) -> list[int]:
    """Encode the texts, in an order that mixes modules, as one run of token ids."""
    mixed = list(texts)
    random.Random("corpus").shuffle(mixed)
    return encode("\n\n".join(mixed))


class PromptSource:
    """Gives out pieces of a corpus from random places."""

    def __init__(self, corpus: Sequence[int], seed: str) -> None:
        self._corpus = corpus
        self._random = random.Random(seed)
        self._beginnings: set[tuple[int, ...]] = set()

    def take(self, num_tokens: int) -> list[int]:
        """Return a piece of exactly ``num_tokens`` that begins like none before it.

        Raises:
            ValueError: the corpus is shorter than that, or has no such beginning left.
        """
        num_places = len(self._corpus) - num_tokens + 1
        if num_places < 1:
            raise ValueError(f"a corpus of {len(self._corpus)} tokens holds no prompt of {num_tokens}")
        for _ in range(10_000):
            place = self._random.randrange(num_places)
            piece = list(self._corpus[place : place + num_tokens])
            beginning = tuple(piece[:NUM_DISTINCT])
            if beginning not in self._beginnings:
                self._beginnings.add(beginning)
                return piece
        raise ValueError(f"after {len(self._beginnings)} prompts the corpus has no new beginning left")
