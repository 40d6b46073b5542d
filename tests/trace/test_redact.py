"""What a trace must never carry: secrets, invalid Unicode, endless texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.trace.redact import MAX_CHARS, redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://api.example.com/v1/chat", "https://api.example.com/v1/chat"),
        ("https://anna:hunter2@api.example.com/v1", "https://api.example.com/v1"),
        ("http://anna:hun/ter2@api.example.com/v1", "http://api.example.com/v1"),
        ("http://127.0.0.1:8000/users/@me", "http://127.0.0.1:8000/users/@me"),
        ("GET https://h/v1?key=hunter2&model=x#t=hunter2 failed", "GET https://h/v1?key=***&model=***#t=*** failed"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer ***"),
        ("the header authorization=hunter2 was refused", "the header authorization=*** was refused"),
        ("{'api_key': 'hunter2', 'model': 'm'}", "{'api_key': '***', 'model': 'm'}"),
        ("OPENAI_API_KEY=hunter2 is wrong", "OPENAI_API_KEY=*** is wrong"),
        ("Incorrect key provided: sk-proj-abcdefghijklmnop", "Incorrect key provided: ***"),
        ("429 after 3 attempts: too many tokens", "429 after 3 attempts: too many tokens"),
        ("数据库 ist müde 🚀", "数据库 ist müde 🚀"),
    ],
)
def test_secrets_go_and_the_rest_stays(text: str, expected: str) -> None:
    """User names, passwords, query values and keys are replaced; what helps to find the fault is left."""
    assert redact(text) == expected


def test_a_secret_at_the_cut_is_not_half_shown() -> None:
    """A text is cut only after it was cleaned, so that no secret loses the mark by which it is known."""
    text = "x" * (MAX_CHARS - 20) + " https://anna:hunter2" + "z" * 50 + "@host/path"
    assert "hunter2" not in redact(text)
    assert len(redact(text)) <= MAX_CHARS


@given(st.text(st.characters(exclude_categories=())) | st.text("aB1:/@?&=#;.- '\"", max_size=60))
def test_any_text_becomes_valid_and_short(text: str) -> None:
    """Whatever an error message holds, the result can be stored, sent and shown, and cleaning it twice changes nothing."""
    cleaned = redact(text)
    assert len(cleaned) <= MAX_CHARS
    cleaned.encode()
    assert redact(cleaned) == cleaned
