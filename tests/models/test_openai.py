from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import anyio.abc
import pytest

from agentrt.errors import (
    AgentrtError,
    ConfigError,
    ModelConnectionError,
    ModelOverloadedError,
    ModelResponseError,
    ModelStreamError,
    RequestError,
)
from agentrt.models import openai_choices
from agentrt.models.model import ChatRequest, FinishEvent, Message, ModelEvent, Sampling, TokenEvent
from agentrt.models.openai import OpenAIModel
from agentrt.models.openai_failures import parse_retry_after
from agentrt.net.http_pool import HttpPool
from tests.support.http_servers import (
    Certificates,
    Endpoint,
    happened,
    running_app,
    running_tcp_server,
    unused_port,
)

pytestmark = pytest.mark.anyio
KEY = "sk-test-0123456789abcdef"
PROMPT = "Please tell me whether parcel 7741-B of Mrs Example has left the house."


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.made_in(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def url(endpoint: Endpoint, certificates: Certificates) -> Iterator[str]:
    """An endpoint that speaks HTTP/2 over TLS."""
    with running_app(endpoint.app(), certificates=certificates) as base:
        yield f"{base}/v1"


@pytest.fixture
def plain_url(endpoint: Endpoint) -> Iterator[str]:
    """An endpoint that speaks HTTP/1.1 in the clear, as local model servers do."""
    with running_app(endpoint.app()) as base:
        yield f"{base}/v1"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


@asynccontextmanager
async def model_of(
    name: str, url: str, certificates: Certificates, *, api_key_env: str | None = "TEST_KEY"
) -> AsyncIterator[OpenAIModel]:
    pool = HttpPool(ssl_context=certificates.client_context())
    try:
        yield OpenAIModel(name, endpoint=url, api_key_env=api_key_env, pool=pool)
    finally:
        await pool.aclose()


def asking(*, timeout_s: float | None = 20.0, traceparent: str | None = None, **sampling: Any) -> ChatRequest:
    messages = (Message("system", "Be brief."), Message("user", PROMPT))
    return ChatRequest(messages, Sampling(**sampling), timeout_s, traceparent)


async def events_of(model: OpenAIModel, request: ChatRequest) -> list[ModelEvent]:
    async with model.stream(request) as events:
        return [event async for event in events]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenEvent))


async def failure_of(
    name: str, url: str, certificates: Certificates, request: ChatRequest | None = None
) -> AgentrtError:
    """Return the error that a call ends with; it must hold neither key nor prompt, its causes included."""
    async with model_of(name, url, certificates) as model:
        with pytest.raises(AgentrtError) as raised:
            await events_of(model, request or asking())
    everything = "".join(traceback.format_exception(raised.value))
    assert KEY not in everything
    assert PROMPT[:24] not in everything
    assert "localhost" in str(raised.value) or "127.0.0.1" in str(raised.value)
    return raised.value


# What a good answer gives.


async def test_tokens_stream_over_http2_with_usage(url: str, endpoint: Endpoint, certificates: Certificates) -> None:
    """A call gives its tokens as they come and ends with why it ended and what it used."""
    async with model_of("normal", url, certificates) as model:
        events = await events_of(model, asking())
        assert [event.text for event in events if isinstance(event, TokenEvent)] == ["Grüß", " dich, ", "世界"]
        assert events[-1] == FinishEvent("stop", 12, 3, num_cached_tokens=8)
        times = [event.time_ns for event in events if isinstance(event, TokenEvent)]
        assert times == sorted(times)
        assert model.provider == "localhost"
        assert model.name == "normal"
    assert endpoint.seen[0].http_version == "2"


async def test_all_models_of_a_pool_share_one_connection(
    url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """Calls of several models to one host, at the same time and later, go over one connection."""
    pool = HttpPool(ssl_context=certificates.client_context())
    models = [OpenAIModel("normal", endpoint=url, api_key_env=None, pool=pool) for _ in range(4)]
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for model in models:
                tasks.start_soon(events_of, model, asking())
    await pool.aclose()
    assert len(endpoint.seen) == 8
    assert len({seen.client for seen in endpoint.seen}) == 1


async def test_a_plain_local_server_works_and_keeps_its_connection(
    plain_url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """http:// is spoken to in HTTP/1.1; a body read to its end leaves the connection for the next call."""
    async with model_of("normal", plain_url, certificates, api_key_env=None) as model:
        for _ in range(3):
            assert text_of(await events_of(model, asking())) == "Grüß dich, 世界"
    assert {seen.http_version for seen in endpoint.seen} == {"1.1"}
    assert len({seen.client for seen in endpoint.seen}) == 1
    assert "authorization" not in endpoint.seen[0].headers


async def test_the_request_carries_what_was_set_and_nothing_else(
    url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """Parameters go under OpenAI's names, those not set stay out; deadline, trace context and key are headers."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    everything = asking(
        max_tokens=7, temperature=0.5, top_k=40, top_p=0.9, seed=1, stop=("\n",), timeout_s=2.5, traceparent=trace
    )
    async with model_of("normal", url, certificates) as model:
        await events_of(model, asking(timeout_s=None))
        await events_of(model, everything)
    least, most = endpoint.seen
    assert least.body == {
        "model": "normal",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 256,
        "temperature": 0.0,
    }
    assert "x-request-timeout-ms" not in least.headers
    assert "traceparent" not in least.headers
    assert most.body == {
        **least.body,
        "max_tokens": 7,
        "temperature": 0.5,
        "top_k": 40,
        "top_p": 0.9,
        "seed": 1,
        "stop": ["\n"],
    }
    assert most.headers["x-request-timeout-ms"] == "2500"
    assert most.headers["traceparent"] == trace
    assert most.headers["authorization"] == f"Bearer {KEY}"


async def test_a_server_that_tells_no_usage_is_fine(url: str, certificates: Certificates) -> None:
    """Counts that the server does not tell are None."""
    async with model_of("without-usage", url, certificates) as model:
        assert (await events_of(model, asking()))[-1] == FinishEvent("stop", None, None)


async def test_bytes_may_be_cut_anywhere(url: str, certificates: Certificates) -> None:
    """One byte at a time, with CRLF and comments: the same tokens, and no half character."""
    async with model_of("bytewise", url, certificates) as model:
        events = await events_of(model, asking())
    assert [event.text for event in events if isinstance(event, TokenEvent)] == ["Grüß", " dich, ", "世界"]


async def test_logprobs_tell_tokens_apart(url: str, certificates: Certificates) -> None:
    """Where the server lists tokens with their logprobs, each becomes an event, unless the list is of other text."""
    async with model_of("logprobs", url, certificates) as model:
        *tokens, finish = await events_of(model, asking())
    assert [(token.text, token.logprob) for token in tokens if isinstance(token, TokenEvent)] == [
        ("a", -0.5),
        ("b", -1.0),
        ("c", -2.0),
        ("de", None),
    ]
    assert finish == FinishEvent("length", None, None)


async def test_a_server_that_cannot_stream_is_understood(url: str, certificates: Certificates) -> None:
    """An answer in one JSON document gives its text and its usage."""
    async with model_of("whole", url, certificates) as model:
        events = await events_of(model, asking())
    assert text_of(events) == "All at once."
    assert events[-1] == FinishEvent("stop", 5, 4)


# Leaving.


@pytest.mark.parametrize("server", ["url", "plain_url"])
async def test_leaving_a_call_stops_the_server(
    server: str, endpoint: Endpoint, certificates: Certificates, request: pytest.FixtureRequest
) -> None:
    """Whoever leaves the block leaves no server working."""
    async with model_of("endless", request.getfixturevalue(server), certificates) as model:
        async with model.stream(asking()) as events:
            first = await anext(events)
            assert isinstance(first, TokenEvent)
            assert first.text == "one"
        assert await happened(endpoint.gone)


@pytest.mark.parametrize("server", ["url", "plain_url"])
async def test_cancelling_before_the_first_byte_stops_the_server(
    server: str, endpoint: Endpoint, certificates: Certificates, request: pytest.FixtureRequest
) -> None:
    """A call cancelled while the server still thinks is known to the server, and the model is as good as before."""
    url = request.getfixturevalue(server)
    async with model_of("silent", url, certificates) as model:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events_of, model, asking())
            assert await happened(endpoint.started)
            tasks.cancel_scope.cancel()
        assert await happened(endpoint.gone)


async def test_a_token_is_delivered_before_the_next_is_made(
    url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """A token is there while the server still waits to make the next."""
    async with model_of("gated", url, certificates) as model, model.stream(asking()) as events:
        first = await anext(events)
        assert isinstance(first, TokenEvent)
        assert not endpoint.go_on.is_set()
        endpoint.go_on.set()
        rest = [event async for event in events]
    assert first.text + text_of(rest) == "one two"


# What goes wrong, and what is said about it.


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("failing:401", ModelResponseError, "status 401: 'it did not work'; check the key in the environment"),
        ("failing:404", ModelResponseError, "it usually ends in /v1) and the model's name, 'failing:404'"),
        ("failing:500", ModelResponseError, "status 500: 'it did not work'; the fault is the server's"),
        ("failing:502,html", ModelResponseError, "status 502; the fault is the server's"),
        ("failing:500,binary", ModelResponseError, "it did not work"),
        ("failing:418,text", ModelResponseError, "status 418: 'it did not work'"),
        ("failing:500,message", ModelResponseError, "'it did not work'"),
        ("failing:500,wrapped", ModelResponseError, "'it did not work'"),
        ("failing:500,echo", ModelResponseError, "(what it says repeats the prompt and is left out)"),
        ("failing:401,key", ModelResponseError, "'wrong key Bearer ***'"),
        ("failing:429,quota", ModelResponseError, "used up its quota"),
        ("failing:400,param", RequestError, "because of 'temperature' (400): 'temperature must be at most 2'"),
        ("failing:422,detail", RequestError, "because of 'top_p' (422): 'it did not work'"),
        ("failing:400,context", RequestError, "because of 'messages' (400): 'too many tokens'"),
        ("failing:413", RequestError, "because of 'messages' (413)"),
        ("failing:429", ModelOverloadedError, "(429): 'it did not work'; try again later"),
        ("failing:503,after=2", ModelOverloadedError, "(503): 'it did not work'; try again in 2 s"),
        ("redirecting", ModelResponseError, "redirects (307) to https://elsewhere.example/v1/chat/completions; redirects"),
        ("html", ModelResponseError, "a web page; check the endpoint"),
        ("broken:no-finish", ModelStreamError, "ended without saying why"),
        ("broken:done-too-early", ModelStreamError, "ended without saying why"),
        ("broken:garbage", ModelStreamError, "a part of the answer is not JSON"),
        ("broken:not-an-object", ModelStreamError, "a part of the answer is not a JSON object"),
        ("broken:latin-1", ModelStreamError, "the answer cannot be read: a line is not UTF-8"),
        ("broken:error", ModelStreamError, "the server reported an error: 'CUDA out of memory'"),
        ("broken:error-text", ModelStreamError, "the server reported an error: 'upstream went away'"),
        ("broken:long-line", ModelStreamError, "an event is larger than"),
        ("broken:filter", ModelResponseError, "content filter stopped the answer"),
    ],
)  # fmt: skip
async def test_each_fault_is_its_own_error(
    name: str, kind: type[AgentrtError], says: str, url: str, certificates: Certificates
) -> None:
    """Host, what happened, what to do next; the kind tells whether to try again."""
    error = await failure_of(name, url, certificates)
    assert type(error) is kind
    assert says in str(error)
    assert "s3cret" not in str(error)


async def test_error_data_sits_in_attributes(url: str, certificates: Certificates) -> None:
    """Status, field and time to wait can be read without parsing the message."""
    response = await failure_of("failing:500", url, certificates)
    assert isinstance(response, ModelResponseError)
    assert response.status == 500
    refused = await failure_of("failing:400,param", url, certificates)
    assert isinstance(refused, RequestError)
    assert refused.field == "temperature"
    overloaded = await failure_of("failing:429,after=1.5", url, certificates)
    assert isinstance(overloaded, ModelOverloadedError)
    assert overloaded.retry_after_s == 1.5


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("silent", ModelConnectionError, "no answer within the call's 0.3 s"),
        ("endless", ModelStreamError, "broke off in the middle: no more of the answer within the call's 0.3 s"),
    ],
)
async def test_a_server_that_stops_is_left_at_the_deadline(
    name: str, kind: type[AgentrtError], says: str, url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """The call's time bounds the wait for the first byte and for the whole answer, and the server is told."""
    async with model_of(name, url, certificates) as model:
        with pytest.raises(kind) as raised:
            await events_of(model, asking(timeout_s=0.3))
        assert says in str(raised.value)
        assert await happened(endpoint.gone)


async def test_nobody_listens(certificates: Certificates) -> None:
    """A refused connection says so."""
    error = await failure_of("x", f"http://127.0.0.1:{unused_port()}/v1", certificates)
    assert isinstance(error, ModelConnectionError)
    assert "refused the connection; is the server running" in str(error)


async def test_a_host_that_does_not_exist(certificates: Certificates) -> None:
    """A name that resolves to nothing says so."""
    async with model_of("x", "http://nowhere.localhost.invalid/v1", certificates) as model:
        with pytest.raises(ModelConnectionError, match=r"nowhere\.localhost\.invalid: its name cannot be resolved"):
            await events_of(model, asking())


async def test_an_untrusted_certificate(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A certificate nobody vouches for says so, and how to vouch for it."""
    error = await failure_of("x", url, Certificates.made_in(tmp_path_factory.mktemp("others")))
    assert isinstance(error, ModelConnectionError)
    assert "its certificate is not trusted" in str(error)
    assert "SSL_CERT_FILE" in str(error)


async def test_https_to_a_plain_server(plain_url: str, certificates: Certificates) -> None:
    """TLS to a server that has none is told as what it is."""
    error = await failure_of("x", plain_url.replace("http://", "https://"), certificates)
    assert isinstance(error, ModelConnectionError)
    assert "begin with http://" in str(error) or "no connection" in str(error)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b"", ModelConnectionError, "the connection broke"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", ModelConnectionError, "the connection broke"),
        (b"nonsense\r\n\r\n", ModelConnectionError, "the connection broke"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, ModelConnectionError, "the connection broke"),
        (STREAM + chunk(b": still thinking\n\n"), ModelConnectionError, "the connection broke"),
        (STREAM + chunk(b'data: {"choices":[{"del'), ModelConnectionError, "the connection broke"),
        (STREAM + chunk(TOKEN), ModelStreamError, "the answer broke off in the middle"),
        (STREAM + chunk(TOKEN) + b"zz\r\n", ModelStreamError, "the answer broke off in the middle"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
            ModelConnectionError,
            "cannot be decompressed",
        ),
    ],
)
async def test_a_connection_that_breaks(
    answer: bytes, kind: type[AgentrtError], says: str, certificates: Certificates
) -> None:
    """Broken before the first token, nothing has begun; afterwards, the answer broke off."""

    async def talk(client: anyio.abc.SocketStream) -> None:
        received = b""
        while not received.endswith(b"}]}"):
            received += await client.receive()
        await client.send(answer)

    with running_tcp_server(talk) as port:
        error = await failure_of("x", f"http://127.0.0.1:{port}/v1", certificates)
    assert type(error) is kind
    assert says in str(error)


async def test_a_server_that_drips_is_left_at_the_deadline(certificates: Certificates) -> None:
    """A header that comes byte by byte for ever does not hold a call beyond its time."""

    async def drip(client: anyio.abc.SocketStream) -> None:
        await client.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            await client.send(b"y")
            await anyio.sleep(0.01)

    with running_tcp_server(drip) as port:
        url = f"http://127.0.0.1:{port}/v1"
        error = await failure_of("x", url, certificates, asking(timeout_s=0.3))
    assert isinstance(error, ModelConnectionError)
    assert "no answer within the call's 0.3 s" in str(error)


async def test_the_key_is_read_when_a_call_begins(
    url: str, endpoint: Endpoint, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing or broken key is told by its variable's name; once it is there, the same model works."""
    async with model_of("normal", url, certificates, api_key_env="OTHER_KEY") as model:
        with pytest.raises(RequestError, match="environment variable OTHER_KEY is not set"):
            await events_of(model, asking())
        monkeypatch.setenv("OTHER_KEY", "sk-ab\ncd")
        with pytest.raises(RequestError, match="OTHER_KEY holds characters that no key has") as raised:
            await events_of(model, asking())
        assert "sk-ab" not in str(raised.value)
        monkeypatch.setenv("OTHER_KEY", "sk-good\n")
        await events_of(model, asking())
    assert [seen.headers["authorization"] for seen in endpoint.seen] == ["Bearer sk-good"]


@pytest.mark.parametrize(
    "endpoint_url", ["", "localhost:8000/v1", "ftp://host/v1", "https://", "http://[::1/v1", "http://h:x/"]
)
def test_an_endpoint_must_be_a_url(endpoint_url: str) -> None:
    """What is not an http(s) URL is refused before any call."""
    with pytest.raises(ConfigError, match="is not an http:// or https:// URL"):
        OpenAIModel("m", endpoint=endpoint_url, api_key_env=None, pool=HttpPool())


def test_an_endpoint_must_hold_no_password() -> None:
    """A secret in the URL is refused without being repeated."""
    with pytest.raises(ConfigError, match="holds a user name or password") as raised:
        OpenAIModel("m", endpoint="https://me:s3cret@host/v1", api_key_env=None, pool=HttpPool())
    assert "s3cret" not in str(raised.value)


# Choices.


@pytest.mark.parametrize(
    ("answer", "choice"),
    [("json", "other"), ("billing", "billing"), (' "billing".\n', "billing"), ('{"choice": "refund"}', "refund")],
)
async def test_an_answer_with_choices_is_one_of_them(
    answer: str, choice: str, url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """The choice comes as one token, however the endpoint dresses it; it was asked for and enforced."""
    async with model_of(f"choosing:{answer}", url, certificates) as model:
        events = await events_of(model, asking(choices=("billing", "refund", "other"), max_tokens=2, stop=("}",)))
    assert text_of(events) == choice
    assert [type(event) for event in events] == [TokenEvent, FinishEvent]
    assert isinstance(events[-1], FinishEvent)
    assert events[-1].reason == "choice"
    sent = endpoint.seen[0].body
    assert sent["messages"][-1]["content"].startswith(PROMPT)
    assert "- refund" in sent["messages"][-1]["content"]
    assert sent["max_tokens"] > 30
    assert "stop" not in sent


async def test_an_answer_that_is_no_choice_is_an_error(url: str, certificates: Certificates) -> None:
    """Nothing is guessed; the error shows how the answer begins."""
    name = f"choosing:billing or refund, {'x' * 100}"
    error = await failure_of(name, url, certificates, asking(choices=("billing", "refund")))
    assert isinstance(error, ModelResponseError)
    assert f"'billing or refund, {'x' * 61}' is none of the choices 'billing', 'refund'" in str(error)


async def test_an_endpoint_without_response_formats_is_asked_in_words(
    url: str, endpoint: Endpoint, certificates: Certificates
) -> None:
    """An endpoint that refuses the format is asked again without it, and afterwards without trying."""
    async with model_of("choosing:only-plain=refund", url, certificates) as model:
        for _ in range(2):
            assert text_of(await events_of(model, asking(choices=("billing", "refund")))) == "refund"
    assert ["response_format" in seen.body for seen in endpoint.seen] == [True, False, False]


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("yes", "yes"),
        ("  yes\n", "yes"),
        ("**yes**", "yes"),
        ('"yes"', "yes"),
        ('{"choice": "no."}', "no."),
        ("no.", "no."),
        ("Yes", None),
        ("yes and no", None),
        ("", None),
        ('{"choice": 1}', None),
        ("[" * 100_000, None),
    ],
)
def test_what_counts_as_a_choice(answer: str, choice: str | None) -> None:
    """Only an answer that is exactly one choice, but for space, quotes and JSON around it, is taken for it."""
    assert openai_choices.chosen(answer, ("yes", "no.")) == choice


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("-1", 0.0),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, wait_s: float | None) -> None:
    """Both forms of Retry-After are read; what makes no sense is no advice."""
    assert parse_retry_after({"retry-after": text}, NOW) == wait_s
