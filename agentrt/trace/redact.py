"""Texts made fit for a trace: no secrets, valid Unicode, bounded length.

A trace is copied further than a log: into incident reports, to a vendor's backend. Error messages of HTTP
clients quote the URL they failed on, and people put keys into URLs, so everything that is not a declared name
is cleaned on its way in. What is replaced: the user and password of a URL, the value of every parameter in
its query and fragment, the word after ``Bearer`` or ``Basic``, and the value given to a name like
``api_key``, ``password`` or ``token``. Prompts and answers are not touched: they are recorded only when asked
for, and then as they were.
"""

from __future__ import annotations

import re

MAX_CHARS = 4096
"""Longest message kept: some servers answer an error with a whole page."""

_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,20}://)(?P<rest>[^\s\"'<>`|\\^{}]+)", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&#;])(?P<name>[^=&#;?]*)=[^&#;]*")
_CREDENTIALS = re.compile(r"\b(?P<word>Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
_NAMED_SECRET = re.compile(
    r"(?P<name>(?<![\w-])[\w-]{0,40}(?:api[_-]?key|apikey|password|passwd|secret|access[_-]?token|auth[_-]?token|authorization))"
    r"(?P<assign>[\"']?\s*[=:]\s*[\"']?)(?!Bearer\b|Basic\b)[^\s\"',;&]+",
    re.IGNORECASE,
)
_PROVIDER_KEY = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}")
_HIDDEN = "***"


def redact(text: str) -> str:
    """Return ``text`` without secrets, as valid Unicode, cut after ``MAX_CHARS`` characters."""
    # Cut roughly first, so that a huge text costs little, and exactly last, so that no secret loses the mark
    # it is known by.
    text = valid_unicode(text[: 4 * MAX_CHARS])
    text = _URL.sub(_clean_url, text)
    text = _CREDENTIALS.sub(rf"\g<word> {_HIDDEN}", text)
    text = _NAMED_SECRET.sub(rf"\g<name>\g<assign>{_HIDDEN}", text)
    text = _PROVIDER_KEY.sub(_HIDDEN, text)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def redact_host(host: str) -> str:
    """Return a host, with its port, that may have been given with a user in front or a query behind."""
    return redact(host.rpartition("@")[2].partition("?")[0])


def valid_unicode(text: str) -> str:
    """Replace lone surrogates, which neither SQLite nor protobuf can carry: one would cost its whole
    batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _clean_url(match: re.Match[str]) -> str:
    rest = match["rest"]
    path_at = min((at for mark in "/?#" if (at := rest.find(mark)) >= 0), default=len(rest))
    user_ends = rest.rfind("@", 0, path_at)
    if user_ends < 0 and not rest[:path_at].rpartition(":")[2].isdigit() and ":" in rest[:path_at]:
        # A password with a slash in it, which should have been escaped: "host:port" would end in digits.
        user_ends = rest.rfind("@")
    return match["scheme"] + _PARAMETER.sub(rf"\g<name>={_HIDDEN}", rest[user_ends + 1 :])
