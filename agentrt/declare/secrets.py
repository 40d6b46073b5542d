"""Secrets written into a text: keys and tokens known by their form, named and never repeated.

Whoever gives out a token gives it a form that programs can know it by: a prefix that is no word, an alphabet, a length.
Only such forms are looked for. Guessing at randomness would find hashes, and a finding that is wrong stops somebody from
running a Dag that is right; so a token must also look drawn at random, not typed as an example, and a password in an
address must not stand for one. What has no form (a password in a sentence) is not found: this is a net, not a proof.

Every pattern holds a fixed text and every repetition in it is bounded, so the work is linear in the text; a text that
holds none of the fixed texts costs one search for each of them, which is what nearly every text costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

_MIN_DISTINCT = 8
"""Different characters of a token drawn at random: of 20 hexadecimal digits, fewer are there once in 4,000 times."""
_MADE_UP = ("example", "xxxx", "placeholder", "redacted", "dummy", "changeme", "your_", "your-", "....")
_STAND_INS = frozenset(
    """password passwd pass pwd passphrase secret token key apikey api_key user username changeme example dummy hidden
    redacted xxx test""".split()  # noqa: SIM905 - words read better than a list
)
_PLACEHOLDER = re.compile(r"[$%]?\{|^[$%<]|^\W*$")
_EXAMPLE_HOST = re.compile(
    r"(?:.*\.)?(?:example\.(?:com|org|net|edu)|example|test|invalid|localhost|localdomain)\.?"
    r"|127(?:\.\d+){3}|\[::1\]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """What kind of secret stands in a text, and the offset of its first character. The secret itself is not kept."""

    kind: str
    start: int


def find_secret(text: str) -> str | None:
    """Return what kind of secret ``text`` holds, such as ``"a GitHub token"``, or None."""
    found = next(find_secrets(text), None)
    return None if found is None else found.kind


def find_secrets(text: str) -> Iterator[FoundSecret]:
    """Go through the secrets in ``text``, one kind after the other."""
    for form in _FORMS:
        if form.fixed in text:
            # Compiled when first needed, and kept by ``re``: most programs never meet most of the forms.
            for match in re.compile(form.pattern, re.ASCII).finditer(text):
                if form.is_real(match):
                    yield FoundSecret(form.kind, match.start("token"))


@dataclass(frozen=True, slots=True)
class _Form:
    """One form of a secret. Every match of ``pattern`` holds ``fixed``, and its group ``token`` is the secret."""

    kind: str
    fixed: str
    pattern: str
    is_real: Callable[[re.Match[str]], bool]


def _is_random(match: re.Match[str]) -> bool:
    """Whether a token looks drawn at random: letters and digits, many of them different, no word of an example."""
    token = match["token"]
    lower = token.lower()
    return (
        len(set(token)) >= _MIN_DISTINCT
        and any(character.isdigit() for character in token)
        and any(character.isalpha() for character in token)
        and not any(word in lower for word in _MADE_UP)
        and not _is_a_row(lower)
    )


def _is_a_row(token: str) -> bool:
    """Whether most characters follow their neighbour, as in ``abcdef`` and ``012345``: typed, not drawn."""
    return 2 * sum(ord(after) - ord(before) == 1 for before, after in pairwise(token)) > len(token)


def _is_varied(match: re.Match[str]) -> bool:
    """For forms so particular that it is enough not to be filled with the same letter, or to say EXAMPLE."""
    return len(set(match["token"])) >= _MIN_DISTINCT and "EXAMPLE" not in match["token"]


def _is_password(match: re.Match[str]) -> bool:
    """Whether the password in an address is one: neither a stand-in nor at a host that is nobody's."""
    user, password, host = match["user"], match["token"], match["host"]
    return (
        password.lower() not in _STAND_INS
        and password != user
        and not _PLACEHOLDER.search(password)
        and not _EXAMPLE_HOST.fullmatch(host)
        and len(set(password)) > 1
    )


def _form(
    kind: str,
    fixed: str,
    token: str,
    is_real: Callable[[re.Match[str]], bool] = _is_random,
    *,
    before: str | None = None,
) -> _Form:
    """Make a form of the ``token`` and what stands ``before`` it: unless told otherwise, ``fixed`` as a word begins."""
    if before is None:
        before = rf"(?<![\w-]){re.escape(fixed)}"
    return _Form(kind, fixed, before + token, is_real)


_MODEL_KEY = "an API key of a model provider"
_FORMS = (
    # OpenAI, Anthropic and those who follow them: sk-..., sk-proj-..., sk-ant-api03-..., sk-or-v1-...
    _form(_MODEL_KEY, "sk-", r"(?=[\w-]{0,24}[A-Za-z0-9]{16})(?P<token>[\w-]{20,250})"),
    _form("a Google API key", "AIza", r"(?P<token>[\w-]{35})(?![\w-])"),
    _form("a Hugging Face token", "hf_", r"(?P<token>[A-Za-z0-9]{30,60})(?!\w)", _is_varied),
    *(
        _form("an AWS access key id", prefix, r"(?P<token>[A-Z2-7]{16})(?!\w)", _is_varied)
        for prefix in ("AKIA", "ASIA")
    ),
    *(
        _form("a GitHub token", prefix, r"(?P<token>[A-Za-z0-9]{36,250})")
        for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
    ),
    _form("a GitHub token", "github_pat_", r"(?P<token>[A-Za-z0-9]{22}_[A-Za-z0-9]{50,70})"),
    _form("a GitLab token", "glpat-", r"(?P<token>[\w-]{20,250})"),
    _form("a Slack token", "xox", r"[abeoprs]-(?P<token>(?:\d-)?\d{8,16}-[A-Za-z0-9-]{10,250})"),
    _form("a Slack token", "xapp-", r"(?P<token>\d-[A-Z0-9]{8,16}-\d{8,16}-[A-Za-z0-9]{20,250})"),
    _form("a Slack webhook", "hooks.slack.com/services/", r"(?P<token>T\w{6,14}/B\w{6,14}/\w{20,30})"),
    _form("a Stripe key", "sk_live_", r"(?P<token>[A-Za-z0-9]{20,250})"),
    _form("a JSON Web Token", "eyJ", r"(?P<token>[\w-]{10,1000}\.eyJ[\w-]{10,4000}\.[\w-]{20,1000})"),
    _form(
        "a bearer token",
        "earer ",
        r"{1,4}(?P<token>[A-Za-z0-9._~+/=-]{20,4000})",
        before=r"(?<![\w-])(?:Bearer|[Aa]uthorization: {0,4}bearer) ",
    ),
    _form(
        "a private key",
        "PRIVATE KEY",
        # The header alone is no secret: what follows it, on the next line or behind a written \n, is.
        r"(?P<token>[A-Za-z0-9+/]{16,100}|(?:Proc-Type|Version): \S{4,30})",
        _is_varied,
        before=r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nr]){1,80}",
    ),
    _form(
        "a password in an address",
        "://",
        r"(?P<token>[^\s/?#@'\"]{1,200})@(?P<host>\[[0-9A-Fa-f:.]{2,60}\]|[\w.-]{1,253})",
        _is_password,
        before=r"://(?P<user>[^\s/?#@:'\"<>]{0,100}):",
    ),
)
