"""The examples under dags/: people copy them, so each is checked, and run on a real model or a real endpoint."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrt.config import RuntimeConfig
from agentrt.declare.dag_file import load_dag_file, parse_dag
from agentrt.run.wiring import Runtime
from tests.support.http_servers import Endpoint, running_app

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def config(model_path: Path, tmp_path: Path) -> RuntimeConfig:
    """The real model, and nothing else of this user's."""
    return RuntimeConfig.from_env(cache_dir=model_path.parent.parent, data_dir=tmp_path, trace=False)


@pytest.fixture
async def runtime(config: RuntimeConfig) -> AsyncIterator[Runtime]:
    async with Runtime(config) as runtime:
        yield runtime


def test_every_example_is_in_order(cli: Callable[..., Any]) -> None:
    """Neither mistakes nor warnings."""
    num_files = len(list(DAGS.glob("*.yaml")))
    ended = cli("check", str(DAGS))
    assert (ended.code, ended.out) == (0, f"{num_files} files checked: nothing wrong\n")


@pytest.mark.model
def test_the_main_job_gives_a_sensible_answer(
    model_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the README: the right page is found and its fact is in the answer; every model call has figures."""
    monkeypatch.setenv("AGENTRT_CACHE_DIR", str(model_path.parent.parent))
    ended = cli("run", str(DAGS / "support_triage.yaml"), "-i", "question=How long does a refund take?", "--json")
    result = json.loads(ended.out)
    assert (ended.code, result["status"]) == (0, "succeeded")
    outputs = result["outputs"]
    assert "5 business days" in outputs["answer"]
    assert (outputs["category"], outputs["urgency"], outputs["note"]) == ("money", "normal", None)
    assert outputs["sources"][0] == "refund-time"
    actions = {action["name"]: action for action in result["actions"]}
    assert actions["note"]["status"] == "skipped"
    for name in ("classify", "urgency", "reply"):
        assert actions[name]["tokens"]["num_tokens"] > 0
        assert actions[name]["tokens"]["ttft_s"] > 0


@pytest.mark.model
@pytest.mark.anyio
async def test_the_examples_keep_their_promises(runtime: Runtime) -> None:
    """A critical question makes a note; a question that no page answers gets no made-up answer; reviews are complete."""
    triage = load_dag_file(DAGS / "support_triage.yaml")
    results: dict[str, Any] = {}

    async def run(name: str, dag: Any, inputs: dict[str, Any]) -> None:
        results[name] = await runtime.run(dag, inputs)

    async with anyio.create_task_group() as tasks:
        question = "Our whole shop is down and customers cannot pay. Help immediately!"
        tasks.start_soon(run, "critical", triage, {"question": question})
        tasks.start_soon(run, "unknown", triage, {"question": "Zyzzyva?"})
        draft = "you are wrong and we dont care"
        tasks.start_soon(run, "review", load_dag_file(DAGS / "parallel_review.yaml"), {"draft": draft})
    assert results["critical"].outputs["urgency"] == "critical"
    assert results["critical"].outputs["note"].strip()
    assert results["unknown"].outputs["answer"] == "None of our help pages fits; a colleague will answer you."
    assert results["unknown"].outputs["sources"] == []
    review = results["review"].outputs
    assert (review["tone"], review["words"]) == ("rude", 7)
    assert review["wording"]
    assert review["title"]


@pytest.mark.anyio
async def test_the_remote_example_speaks_with_a_real_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the address is changed: the key comes from the environment, the second call is left out when not needed."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    endpoint = Endpoint()
    text = (DAGS / "remote_model.yaml").read_text()
    with running_app(endpoint.app()) as url:
        own = text.replace("https://api.openai.com", url).replace("gpt-4o-mini", "normal")
        async with Runtime(RuntimeConfig(data_dir=tmp_path, trace=False)) as runtime:
            result = await runtime.run(parse_dag(own), {"text": "Good morning", "language": "French"})
    (seen,) = endpoint.seen
    assert seen.headers["authorization"] == "Bearer sk-test"
    assert seen.body["messages"][-1]["content"] == "Translate into French: Good morning"
    assert result.outputs["translation"] == result.action("translate").output != ""
    assert result.action("shorten").status == "skipped"
