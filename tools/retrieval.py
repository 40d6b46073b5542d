"""Retrieval over a small corpus: BM25 (Robertson & Zaragoza, 2009) by bm25s, which needs only numpy.

The index is built at the first question and kept while the file is unchanged. Words are compared without case, accents are
kept; Chinese, Japanese and Korean text is cut into characters and overlapping pairs of them, which finds words without a
dictionary.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrt.errors import ToolError
from agentrt.tools.corpus import Fingerprint, Passage, fingerprint, locate, read_corpus
from agentrt.tools.tool import Tool, ToolContext, tool_from_function

MAX_QUERY_CHARS = 10_000
MAX_TOP_K = 50
MAX_INDEXES = 8

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_STOP_WORDS = frozenset(
    """a an and are as at be by can do does for from has have how i if in is it its me my of on or that the this to was
    we what when where which who why will with you your""".split()  # noqa: SIM905 - words read better than a list
)


def words_of(text: str) -> list[str]:
    """Cut a text into the words it is found by."""
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if re.match(rf"[{_CJK}]", word):
            words += [*word, *(word[i : i + 2] for i in range(len(word) - 1))]
        elif word not in _STOP_WORDS:
            words.append(_stem(word))
    return words


def _stem(word: str) -> str:
    """Take the endings of English plurals and tenses off, so that "refunds" finds "refund"."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


@dataclass(frozen=True, slots=True)
class Index:
    """A corpus ready to be searched."""

    passages: list[Passage]
    bm25: Any

    @classmethod
    def of(cls, passages: list[Passage]) -> Index:
        import bm25s

        # A title says more about a passage than a sentence of it does: it counts twice.
        words = [words_of(f"{passage.title} {passage.title} {passage.text}") for passage in passages]
        if not any(words):
            raise ToolError("the corpus holds no words")
        bm25: Any = bm25s.BM25()  # type: ignore[no-untyped-call]
        bm25.index(words, show_progress=False)
        return cls(passages, bm25)

    def search(self, query: str, top_k: int) -> list[dict[str, Any]]:
        """Return the best passages, best first; those with the same score in the order of the corpus."""
        words = [word for word in words_of(query) if word in self.bm25.vocab_dict]
        if not words:
            return []
        scores = self.bm25.get_scores(words)
        best = sorted(range(len(self.passages)), key=lambda i: (-scores[i], i))[:top_k]
        return [
            {
                "id": self.passages[i].id,
                "title": self.passages[i].title,
                "text": self.passages[i].text,
                "score": round(float(scores[i]), 4),
            }
            for i in best
            if scores[i] > 0
        ]


class IndexCache:
    """Indexes of the corpora used last; safe to use from several threads."""

    def __init__(self, max_indexes: int = MAX_INDEXES) -> None:
        self._indexes: OrderedDict[tuple[Path, Fingerprint], Index] = OrderedDict()
        self._max_indexes = max_indexes
        self._lock = threading.Lock()

    def index_of(self, path: Path) -> Index:
        """Return the index of a corpus, built anew when the file has changed."""
        key = (path, fingerprint(path))
        # Building under the lock: a second caller waits for the index instead of building the same one.
        with self._lock:
            if key not in self._indexes:
                self._indexes[key] = Index.of(read_corpus(path))
                while len(self._indexes) > self._max_indexes:
                    self._indexes.popitem(last=False)
            self._indexes.move_to_end(key)
            return self._indexes[key]


def make_retrieval() -> Tool:
    """Make the tool, with a cache of its own."""
    cache = IndexCache()

    def retrieval(query: str, corpus: str, context: ToolContext, top_k: int = 3) -> list[dict[str, Any]]:
        """Find the passages of a corpus that fit a question best: ``[{id, title, text, score}]``, best first.

        corpus: a file of JSON lines, or a folder of .md and .txt files, beside the DAG file. top_k: 1 to 50.
        """
        if not 1 <= top_k <= MAX_TOP_K:
            raise ToolError(f"top_k is {top_k}; expected 1 to {MAX_TOP_K}")
        return cache.index_of(locate(corpus, context.base_dir)).search(query[:MAX_QUERY_CHARS], top_k)

    return tool_from_function(retrieval, effects="none", action_type="retrieval")
