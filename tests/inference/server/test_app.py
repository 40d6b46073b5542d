"""The server as its callers see it: the official client, plain HTTP, wrong requests, and clients that leave."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jsonschema
import openai
import pytest

from agentrt.inference.async_engine import AsyncEngine
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.server.access import Access
from agentrt.inference.server.app import Limits, State, make_app
from agentrt.inference.server.models import ServedModel
from agentrt.inference.weights import load_model
from tests.support.http_servers import running_app

WAIT_S = 20.0


def served_model(path: Path, **config: Any) -> ServedModel:
    loaded = load_model(path)
    engine = Engine(loaded.model, loaded.tokenizer, EngineConfig(num_blocks=256, num_threads=1, **config))
    return ServedModel("tiny", AsyncEngine(engine), loaded.tokenizer, loaded.chat_template, created_s=1_700_000_000)


@pytest.fixture(scope="module")
def model(tiny_gguf: Path) -> Iterator[ServedModel]:
    served = served_model(tiny_gguf)
    yield served
    anyio.run(served.engine.aclose)


@pytest.fixture(scope="module")
def url(model: ServedModel) -> Iterator[str]:
    with running_app(make_app({"tiny": model}, limits=Limits(max_body_bytes=1 << 20, body_timeout_s=1.0))) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(url: str, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx2.post(f"{url}{path}", content=content, headers=headers, timeout=WAIT_S)
    return answer.status_code, answer.json()


def idle(model: ServedModel) -> bool:
    """Wait until the engine holds no request any more."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        stats = model.engine.stats()
        if stats.num_running == stats.num_waiting == stats.num_used_blocks == 0:
            return True
        time.sleep(0.01)
    return False


def test_a_completion_whole_and_in_pieces_is_the_same(client: openai.OpenAI) -> None:
    """Streaming changes how an answer comes, not what it is; the last chunk states the usage, cached tokens included."""
    asked: dict[str, Any] = {"model": "tiny", "prompt": "Hello there", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    usage = chunks[-1].usage
    assert usage is not None
    assert whole.usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details is not None


def test_a_prompt_seen_before_is_cached(client: openai.OpenAI) -> None:
    """The full blocks of a prompt are found again by the next request, and counted."""
    prompt = list(range(20, 70))
    for expected in (0, 48):
        answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=2, temperature=0)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == expected


def test_tenants_share_nothing(url: str) -> None:
    """With another `x-tenant` a prompt that is cached for one is computed for the other."""
    body = {"model": "tiny", "prompt": list(range(90, 140)), "max_tokens": 1, "temperature": 0}
    cached = []
    for tenant in ("one", "two", "one"):
        status, answer = post(url, "/v1/completions", body, **{"x-tenant": tenant})
        assert status == 200
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 0, 48]


def test_a_chat_streams_its_role_first(client: openai.OpenAI) -> None:
    """A chat's stream begins with the role and adds up to the whole answer."""
    asked: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
    whole = client.chat.completions.create(**asked, temperature=0)
    chunks = list(client.chat.completions.create(**asked, temperature=0, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content


def test_samples_have_seeds_of_their_own(client: openai.OpenAI) -> None:
    """`n` samples differ, come under their index streaming or not, and are the same whenever they are asked for."""
    asked: dict[str, Any] = {"model": "tiny", "prompt": "Hi", "max_tokens": 10, "temperature": 1.5, "seed": 3, "n": 3}
    texts = [choice.text for choice in client.completions.create(**asked).choices]
    assert len(set(texts)) == 3
    streamed = ["", "", ""]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


def test_logprobs_are_told(client: openai.OpenAI) -> None:
    """With `logprobs` each token has its own log-probability and those of the likeliest, in both dialects."""
    answer = client.completions.create(model="tiny", prompt="Hi", max_tokens=4, temperature=0, logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert [max(top.values()) for top in logprobs.top_logprobs] == pytest.approx(logprobs.token_logprobs)
    chat = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        max_tokens=3,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )
    content = chat.choices[0].logprobs
    assert content is not None
    assert content.content is not None
    assert [len(token.top_logprobs) for token in content.content] == [2] * len(content.content)


def test_a_schema_holds_the_answer(client: openai.OpenAI) -> None:
    """`response_format` makes even a random model answer with JSON that fits."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["s", "m"]}},
        "required": ["ok", "size"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        max_tokens=120,
        temperature=1,
        seed=1,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    )
    assert answer.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(answer.choices[0].message.content or ""), schema)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1] * 5000, "max_tokens": 1}, "prompt"),
        ({"stop": ["x"] * 10_000}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"seed": -1}, "seed"),
        ({"tempratur": 1}, "tempratur"),
        ({"echo": True}, "echo"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"model": None}, "model"),
    ],
)
def test_a_wrong_parameter_is_named(url: str, change: dict[str, Any], param: str) -> None:
    """OpenAI's error object, status 400, and the field in `param`."""
    status, answer = post(url, "/v1/completions", {"model": "tiny", "prompt": "Hi", "max_tokens": 4} | change)
    assert status == 400
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["param"].split(".")[0] == param
    assert answer["error"]["type"] == "invalid_request_error"


def test_an_unknown_model_is_404(client: openai.OpenAI) -> None:
    """The client raises its NotFoundError; the text says what is served."""
    with pytest.raises(openai.NotFoundError, match="there is tiny"):
        client.completions.create(model="other", prompt="Hi")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"\xff\xfe", b'{"model": NaN}', b"[" * 100_000, b'{"n": ' + b"9" * 10_000 + b"}", b'"\\ud800"'],
)
def test_a_body_that_is_no_request_is_refused(url: str, body: bytes) -> None:
    """Whatever the bytes, the answer is an error object with status 400, and the server goes on."""
    status, answer = post(url, "/v1/chat/completions", body)
    assert status == 400
    assert answer["error"]["message"]
    assert httpx2.get(f"{url}/health").json() == {"status": "ok"}


def test_a_body_too_large_or_too_slow_is_refused(url: str) -> None:
    """More than the limit is 413; one that stops arriving is 408 after the time for it."""
    status, _ = post(url, "/v1/completions", b" " * (2 << 20))
    assert status == 413
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_deadline_ends_a_request(url: str) -> None:
    """`x-request-timeout-ms` is a deadline: past it the answer is 504, in a stream an error event."""
    body = {"model": "tiny", "prompt": "Hi", "max_tokens": 480, "ignore_eos": True, "temperature": 0}
    status, answer = post(url, "/v1/completions", body, **{"x-request-timeout-ms": "5"})
    assert status == 504
    assert answer["error"]["type"] == "timeout_error"
    status, answer = post(url, "/v1/completions", body, **{"x-request-timeout-ms": "soon"})
    assert (status, answer["error"]["param"]) == (400, "x-request-timeout-ms")


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_frees_its_blocks(model: ServedModel, url: str, streams: bool) -> None:
    """When the connection closes in the middle, the request is dropped and nothing of it stays in the engine."""
    body = {"model": "tiny", "prompt": "Hi", "max_tokens": 500, "ignore_eos": True, "stream": streams, "n": 3}
    content = json.dumps(body).encode()
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        if streams:
            connection.recv(10)
    assert idle(model)
    assert model.engine.stats().num_output_tokens < 10**6


def test_a_full_queue_says_when_to_come_back(tiny_gguf: Path) -> None:
    """Beyond the queue's bound a request gets 429 and Retry-After; those in it are served."""
    served = served_model(tiny_gguf, max_sequences=1, max_waiting=1)
    body = {"model": "tiny", "prompt": "Hi", "max_tokens": 300, "ignore_eos": True, "n": 8}
    with running_app(make_app({"tiny": served})) as url:
        answer = httpx2.post(f"{url}/v1/completions", json=body, timeout=WAIT_S)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        status, _ = post(url, "/v1/completions", body | {"n": 1})
        assert status == 200
    anyio.run(served.engine.aclose)


def test_a_key_is_asked_for_where_there_is_one(model: ServedModel) -> None:
    """Without the right bearer token nothing is served; the health check needs none."""
    with running_app(make_app({"tiny": model}, access=Access("s3cret"))) as url:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
            assert httpx2.get(f"{url}/v1/models", headers=headers).status_code == 401
        assert httpx2.get(f"{url}/v1/models", headers={"authorization": "Bearer s3cret"}).status_code == 200
        assert httpx2.get(f"{url}/health").status_code == 200
    assert "s3cret" not in repr(Access("s3cret"))


def test_draining_is_told(model: ServedModel) -> None:
    """While the server ends, the health check says so with 503."""
    state = State(is_draining=True)
    with running_app(make_app({"tiny": model}, state=state)) as url:
        assert httpx2.get(f"{url}/health").status_code == 503


def test_metrics_fill(client: openai.OpenAI, url: str) -> None:
    """TTFT and ITL are counted apart: one first token a sample, the others between."""
    before = httpx2.get(f"{url}/metrics").text
    client.completions.create(model="tiny", prompt="Hi", max_tokens=5, temperature=0, extra_body={"ignore_eos": True})
    after = httpx2.get(f"{url}/metrics").text

    def count(text: str, name: str) -> float:
        lines = [line for line in text.splitlines() if line.startswith(f'{name}_count{{model="tiny"}}')]
        return float(lines[0].split()[-1]) if lines else 0.0

    assert count(after, "agentrt_ttft_seconds") - count(before, "agentrt_ttft_seconds") == 1
    assert count(after, "agentrt_itl_seconds") - count(before, "agentrt_itl_seconds") == 4
    assert 'agentrt_kv_blocks{model="tiny"} 256.0' in after


def test_the_api_is_described(url: str) -> None:
    """The OpenAPI document names every route that takes requests, and resolves its own references."""
    document = httpx2.get(f"{url}/openapi.json").json()
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics"} <= set(document["paths"])
    text = json.dumps(document)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(document["components"]["schemas"])


def test_there_is_nothing_else(url: str) -> None:
    """Another path is 404, another method 405, both as error objects."""
    assert httpx2.get(f"{url}/v1/engines").json()["error"]["code"] == "not_found"
    assert httpx2.get(f"{url}/v1/completions").json()["error"]["code"] == "method_not_allowed"
    assert httpx2.get(f"{url}/v1/models/other").status_code == 404
    assert httpx2.get(f"{url}/v1/models/tiny").json()["max_model_len"] == 512


def test_http_2_without_tls_is_spoken(url: str) -> None:
    """A client that knows that the server speaks HTTP/2 needs no upgrade."""
    with httpx2.Client(http1=False, http2=True) as client:
        answer = client.get(f"{url}/v1/models")
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
