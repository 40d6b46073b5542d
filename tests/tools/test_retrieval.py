"""What the retrieval tool promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.errors import ToolError
from agentrt.tools.retrieval import make_retrieval, words_of
from agentrt.tools.tool import Tool, ToolContext

FAQ = Path(__file__).resolve().parents[2] / "dags" / "support_triage" / "faq.jsonl"


@pytest.fixture
def retrieval() -> Tool:
    return make_retrieval()


def search(tool: Tool, base_dir: Path | None, **arguments: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tool.function(**tool.bind(arguments, ToolContext(base_dir)))
    return found


def write_corpus(folder: Path, *texts: str) -> None:
    lines = [json.dumps({"id": f"p{i}", "text": text}) for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("question", "passage"),
    [
        ("How long does a refund take?", "refund-time"),
        ("I forgot my password, how can I reset it?", "reset-password"),
        ("My card was declined!", "card-declined"),
        ("The app keeps crashing", "app-crash"),
        ("when does express delivery arrive", "delivery-time"),
    ],
)
def test_the_example_corpus_answers_everyday_questions(retrieval: Tool, question: str, passage: str) -> None:
    """The passage one would look for comes first."""
    found = search(retrieval, FAQ.parent, query=question, corpus="faq.jsonl")
    assert found[0]["id"] == passage
    assert [item["score"] for item in found] == sorted((item["score"] for item in found), reverse=True)
    assert len(found) <= 3


def test_chinese_is_found_without_a_dictionary(retrieval: Tool, tmp_path: Path) -> None:
    """A question in Chinese finds the passage that shares its words."""
    write_corpus(tmp_path, "退款需要五个工作日。", "密码可以在登录页面重置。", "标准配送需要两到四天。")
    assert search(retrieval, tmp_path, query="怎么重置密码？", corpus="corpus.jsonl")[0]["id"] == "p1"
    assert search(retrieval, tmp_path, query="退", corpus="corpus.jsonl")[0]["id"] == "p0"


def test_a_folder_of_texts_is_a_corpus(retrieval: Tool, tmp_path: Path) -> None:
    """Each .md and .txt file is a passage; its first heading is the title."""
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "a.md").write_text("# Refunds\nWithin 30 days.")
    (tmp_path / "kb" / "b.txt").write_text("Delivery takes two days.")
    (tmp_path / "kb" / "c.bin").write_text("refund refund refund")
    found = search(retrieval, tmp_path, query="refund", corpus="kb")
    assert [(item["id"], item["title"]) for item in found] == [("a.md", "Refunds")]


def test_equal_scores_keep_the_order_of_the_corpus(retrieval: Tool, tmp_path: Path) -> None:
    """The same question gives the same answer every time."""
    write_corpus(tmp_path, "blue sky", "blue sky", "green", "blue sky")
    assert [item["id"] for item in search(retrieval, tmp_path, query="blue", corpus="corpus.jsonl")] == [
        "p0",
        "p1",
        "p3",
    ]


@pytest.mark.parametrize("query", ["", "zzz", "the of and", "\x00", "🦙", "а" * 100_000])
def test_a_question_that_fits_nothing_finds_nothing(retrieval: Tool, query: str) -> None:
    """No match is an empty list, not an error and not the least bad passage."""
    assert search(retrieval, FAQ.parent, query=query, corpus="faq.jsonl") == []


def test_a_changed_file_is_read_again(retrieval: Tool, tmp_path: Path) -> None:
    """The index follows the file."""
    write_corpus(tmp_path, "alpha")
    assert search(retrieval, tmp_path, query="beta", corpus="corpus.jsonl") == []
    write_corpus(tmp_path, "alpha", "beta")
    assert search(retrieval, tmp_path, query="beta", corpus="corpus.jsonl")[0]["id"] == "p1"


def test_a_changed_file_in_a_folder_is_read_again(retrieval: Tool, tmp_path: Path) -> None:
    """So does that of a folder, although the folder itself does not change with its files."""
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "a.md").write_text("alpha")
    assert search(retrieval, tmp_path, query="beta", corpus="kb") == []
    (tmp_path / "kb" / "a.md").write_text("alpha beta")
    assert search(retrieval, tmp_path, query="beta", corpus="kb")[0]["id"] == "a.md"


def test_a_corpus_outside_the_dags_folder_is_refused(retrieval: Tool, tmp_path: Path) -> None:
    """Neither .. nor an absolute path nor a link leads out."""
    inside = tmp_path / "inside"
    inside.mkdir()
    write_corpus(tmp_path, "secret")
    (inside / "link.jsonl").symlink_to(tmp_path / "corpus.jsonl")
    for name in ("../corpus.jsonl", str(tmp_path / "corpus.jsonl"), "link.jsonl"):
        with pytest.raises(ToolError, match="outside the DAG file's folder"):
            search(retrieval, inside, query="secret", corpus=name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"text": ', "corpus.jsonl:2: this line is no JSON"),
        (b'{"text": "a"}\n[1]', "corpus.jsonl:2: expected an object"),
        (b'{"text": "a", "title": 3}', "corpus.jsonl:1: 'title' must be a text"),
        (b'{"text": "a"}\n\xff', "corpus.jsonl:2: the corpus is not UTF-8"),
        (b"", "holds no passages"),
        (b'{"text": "!!!"}', "holds no words"),
        (b"[" * 100_000, "corpus.jsonl:1: this line is no JSON"),
    ],
)
def test_a_broken_corpus_is_told_with_its_line(retrieval: Tool, tmp_path: Path, content: bytes, message: str) -> None:
    """Bad input gives one clear error."""
    (tmp_path / "corpus.jsonl").write_bytes(content)
    with pytest.raises(ToolError) as caught:
        search(retrieval, tmp_path, query="a", corpus="corpus.jsonl")
    assert message in str(caught.value)


def test_a_missing_corpus_is_told_with_the_nearest_name(retrieval: Tool) -> None:
    """A misspelt file is answered with the one that was meant."""
    with pytest.raises(ToolError, match=r"did you mean 'faq.jsonl'"):
        search(retrieval, FAQ.parent, query="a", corpus="faqs.jsonl")


def test_top_k_is_bounded(retrieval: Tool) -> None:
    """Between 1 and 50 passages are given."""
    assert len(search(retrieval, FAQ.parent, query="days", corpus="faq.jsonl", top_k=1)) == 1
    for top_k in (0, -1, 51):
        with pytest.raises(ToolError, match="expected 1 to 50"):
            search(retrieval, FAQ.parent, query="days", corpus="faq.jsonl", top_k=top_k)


def test_words_are_compared_without_case_and_width() -> None:
    """Full-width letters, capitals and plurals meet."""
    assert words_of("ＲＥＦＵＮＤＳ Straße") == ["refund", "strasse"]
    assert words_of("退款 x") == ["退", "款", "退款", "x"]
