"""Secrets in a text: found by their form, never repeated, and nothing else is taken for one."""

from __future__ import annotations

import base64
import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt.declare.secrets import find_secret, find_secrets

LETTERS = string.ascii_letters + string.digits
_RANDOM = random.Random(7)


def drawn(length: int, alphabet: str = LETTERS) -> str:
    """Draw a token, with a digit and a letter in it."""
    return "a" + "".join(_RANDOM.choices(alphabet, k=length - 2)) + "7"


def jwt() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': '1234567890', 'iat': 1516239022})}.{drawn(43)}"


# Put together when the test runs: no file of this repository holds what a scanner would take for a secret.
SECRETS = [
    ("an API key of a model provider", "sk" + "-" + drawn(48)),
    ("an API key of a model provider", "sk" + "-proj-" + drawn(74) + "T3Blbk" + drawn(40)),
    ("an API key of a model provider", "sk" + "-ant-api03-" + drawn(40) + "_" + drawn(40) + "-AA"),
    ("an API key of a model provider", "sk" + "-or-v1-" + drawn(64, "0123456789abcdef")),
    ("an AWS access key id", "AK" + "IA" + drawn(16, string.ascii_uppercase + "234567").upper()),
    ("an AWS access key id", "AS" + "IA" + drawn(16, string.ascii_uppercase + "234567").upper()),
    ("a GitHub token", "gh" + "p_" + drawn(36)),
    ("a GitHub token", "gh" + "s_" + drawn(36)),
    ("a GitHub token", "github" + "_pat_" + drawn(22) + "_" + drawn(59)),
    ("a GitLab token", "gl" + "pat-" + drawn(20)),
    ("a Slack token", "xo" + "xb-" + "123409876543-9876501234567-" + drawn(24)),
    ("a Slack token", "xa" + "pp-1-A0234567890-1234509876543-" + drawn(64, "0123456789abcdef")),
    ("a Slack webhook", "https://hooks.slack" + ".com/services/T01AB2CD3/B04EF5GH6/" + drawn(24)),
    ("a Google API key", "AI" + "za" + drawn(35)),
    ("a Hugging Face token", "h" + "f_" + "".join(_RANDOM.sample(string.ascii_letters, 34))),
    ("a Stripe key", "sk" + "_live_" + drawn(24)),
    ("a private key", "-----BEGIN RSA PRIVATE" + " KEY-----\n" + drawn(64) + "\n-----END RSA PRIVATE KEY-----"),
    ("a private key", "-----BEGIN PRIVATE" + " KEY-----\\n" + drawn(64)),
    ("a private key", "-----BEGIN OPENSSH PRIVATE" + " KEY-----\n      " + drawn(64)),
    ("a JSON Web Token", jwt()),
    ("a bearer token", "Bearer " + drawn(40)),
    ("a bearer token", "authorization: bearer " + drawn(40)),
    ("a password in an address", "https://clerk:" + "ar4-Tulip" + "@models.internal/v1"),
    ("a password in an address", "postgresql://app:" + "p%40ssFor1" + "@10.0.3.7:5432/orders"),
    ("a password in an address", "redis://:" + "hunter2hunter" + "@cache:6379"),
]

HARMLESS = [
    "",
    "Ask for sk- and nothing else.",
    "sk-your-api-key-goes-here-0123456789",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "sk-${OPENAI_API_KEY}",
    "export OPENAI_API_KEY=sk-...",
    "sk-abcdefghijklmnopqrstuvwxyz0123456789",
    "disk-4f2a9c81d03be75f6a4e9d2c80b1f357 is the volume's name",
    "task-4f2a9c81d03be75f6a4e9d2c80b1f357",
    "AKIA" + "IOSFODNN7" + "EXAMPLE",
    "AKIAAAAAAAAAAAAAAAAA",
    "SLOVAKIALEADSTHEWORLDINTHIS",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "xoxb-your-token",
    "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "-----BEGIN PRIVATE KEY-----",
    "Never print a line that begins with -----BEGIN RSA PRIVATE KEY----- or -----BEGIN PRIVATE KEY-----.",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKC",
    "Authorization: Bearer {{ inputs.token }}",
    "Authorization: Bearer ${TOKEN_FROM_THE_ENVIRONMENT}",
    "Authorization: Bearer <the-token-you-were-given>",
    "Bearer of good news, to-be-continued-on-the-next-page",
    "https://user:password@models.internal/v1",
    "https://USER:PASS@models.internal/v1",
    "postgresql://postgres:postgres@db/orders",
    "https://clerk:${CLERK_PASSWORD}@models.internal/v1",
    "https://clerk:{{ inputs.password }}@models.internal/v1",
    "https://clerk:{{inputs.password}}@models.internal/v1",
    "https://clerk:$PASSWORD@models.internal/v1",
    "https://clerk:<password>@models.internal/v1",
    "https://clerk:******@models.internal/v1",
    "https://clerk:tulip-four@api.example.com/v1",
    "https://clerk:tulip-four@localhost:8000/v1",
    "https://clerk:tulip-four@127.0.0.1:8000/v1",
    "https://models.internal:8443/v1?to=a@b.org",
    "See https://en.wikipedia.org/wiki/E-mail: write to someone@example.com",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
]


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
@pytest.mark.parametrize("around", ["{}", "Use this: {} for every call.", "key={}\nrest", '{{"key": "{}"}}'])
def test_a_secret_is_found_and_named(kind: str, secret: str, around: str) -> None:
    """Alone and in the middle of a text; what is returned holds nothing of it."""
    text = around.format(secret)
    assert find_secret(text) == kind
    (found,) = [found for found in find_secrets(text) if found.kind == kind]
    assert around.index("{}") <= found.start < text.index(secret) + len(secret)
    assert secret[-10:] not in repr(found)


@pytest.mark.parametrize("text", HARMLESS)
def test_placeholders_examples_and_templates_are_no_secrets(text: str) -> None:
    """What stands for a secret, in a file that does everything right, is let through."""
    assert find_secret(text) is None


def test_a_placeholder_does_not_hide_a_secret_behind_it() -> None:
    """The search goes on after what turned out to be harmless."""
    secret = "gh" + "p_" + drawn(36)
    assert find_secret(f"not ghp_{'x' * 36} but {secret}") == "a GitHub token"


def test_every_secret_is_told() -> None:
    """Two in one text are two findings, each with its offset."""
    one, two = "gh" + "p_" + drawn(36), "gh" + "o_" + drawn(36)
    assert [(f.kind, f.start) for f in find_secrets(f"{one} {two}")] == [
        ("a GitHub token", 4),
        ("a GitHub token", 37 + 4 + 4),
    ]


WORDS = st.sampled_from(
    """the bearer Bearer of a key keys secret token password private public begin BEGIN sk task risk ask api https http
    :// user admin @ example.com hf gh github slack AKIA eyJ A I am authorization: basic mail to us at desk-top""".split()  # noqa: SIM905 - words read better than a list
)
DIGESTS = st.binary(min_size=20, max_size=20).map(bytes.hex) | st.binary(min_size=4, max_size=4).map(bytes.hex)
NUMBERS = st.integers(0, 10**12).map(str)


@given(st.lists(WORDS | NUMBERS | st.text(max_size=12), max_size=60), st.sampled_from([" ", "\n", ", "]))
def test_prose_is_no_secret(words: list[str], between: str) -> None:
    """Words, even those that secrets are spoken of with, numbers and any short text between them."""
    assert find_secret(between.join(words)) is None


@given(st.lists(DIGESTS, min_size=1, max_size=20), st.sampled_from([" ", "\n", "-", ":", "/", "commit ", "sha1-"]))
def test_digests_are_no_secrets(digests: list[str], between: str) -> None:
    """Hashes of git, as corpora and logs are full of, whatever stands between them."""
    assert find_secret(between + between.join(digests)) is None
