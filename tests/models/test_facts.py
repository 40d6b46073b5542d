"""What is known of models from their files alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentrt.compile.context_fit import context_problems, fixed_texts
from agentrt.config import RuntimeConfig
from agentrt.declare.action import Action
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.dag import Dag
from agentrt.declare.template import Template
from agentrt.models.catalog import CATALOG
from agentrt.models.facts import ModelFileFacts
from tests.support.model_files import TinyShape, write_tiny_folder, write_tiny_gguf


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(cache_dir=tmp_path / "cache", data_dir=tmp_path / "data")


def test_a_gguf_file_tells_its_window_and_counts_tokens(tiny_gguf: Path, config: RuntimeConfig) -> None:
    """A path is found from the folder of the Dag, as it is when the model is loaded."""
    facts = ModelFileFacts(config)
    ref = ModelRef(tiny_gguf.name)
    assert facts.context_tokens(ref, tiny_gguf.parent) == TinyShape().max_context_tokens
    assert facts.count_tokens(ref, tiny_gguf.parent, "hello world") == 2
    assert facts.count_tokens(ref, tiny_gguf.parent, "xyz") == 3
    assert facts.context_tokens(ref, tiny_gguf.parent.parent) is None


def test_a_folder_tells_the_same(tmp_path: Path, config: RuntimeConfig) -> None:
    """Hugging Face's layout, with its config.json and tokenizer.json."""
    write_tiny_folder(tmp_path / "model")
    facts = ModelFileFacts(config)
    ref = ModelRef(str(tmp_path / "model"))
    assert facts.context_tokens(ref, None) == TinyShape().max_context_tokens
    assert facts.count_tokens(ref, None, "hello world") == 2


def test_a_file_is_read_once(tiny_gguf: Path, tmp_path: Path, config: RuntimeConfig) -> None:
    """Ten actions that ask the same model open its file one time."""
    copy = tmp_path / "copy.gguf"
    shutil.copy(tiny_gguf, copy)
    facts = ModelFileFacts(config)
    assert facts.count_tokens(ModelRef(str(copy)), None, "hello") == 1
    copy.unlink()
    assert facts.count_tokens(ModelRef(str(copy)), None, "hello world") == 2
    assert facts.context_tokens(ModelRef(str(copy)), None) == TinyShape().max_context_tokens


@pytest.mark.parametrize(
    "ref",
    [
        None,
        ModelRef("smollm2-135m"),
        ModelRef("smollm2-135m", endpoint="http://127.0.0.1:9"),
        ModelRef("hf:owner/name"),
        ModelRef("no-such-model"),
        ModelRef("./absent.gguf"),
        ModelRef("~nobody-of-that-name/model.gguf"),
        ModelRef("a\0b"),
        ModelRef(""),
        ModelRef("mine"),
        ModelRef("damaged.gguf"),
        ModelRef("empty"),
    ],
)
def test_what_is_not_on_this_machine_is_unknown(ref: ModelRef | None, config: RuntimeConfig, tmp_path: Path) -> None:
    """Nothing is fetched for a question, and nothing is raised: running the Dag says what is wrong."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 16)
    before = sorted(tmp_path.rglob("*"))
    facts = ModelFileFacts(config, given=["mine"])
    assert facts.context_tokens(ref, tmp_path) is None
    assert facts.count_tokens(ref, tmp_path, "hello") is None
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.model
def test_the_default_model_is_known_once_it_was_pulled(model_path: Path) -> None:
    """By its name in the catalog, and as the default."""
    facts = ModelFileFacts(RuntimeConfig(cache_dir=model_path.parent.parent))
    assert model_path.name == CATALOG["smollm2-135m"].file_name
    assert facts.context_tokens(None, None) == facts.context_tokens(ModelRef("smollm2-135m"), None) == 8192
    assert facts.count_tokens(None, None, "The quick brown fox") == 4


def test_facts_need_no_torch(tiny_gguf: Path) -> None:
    """`agentrt check` reads windows and tokenizers and must not wait seconds for torch."""
    program = (
        "import sys\n"
        "from agentrt.config import RuntimeConfig\n"
        "from agentrt.declare.agent import ModelRef\n"
        "from agentrt.models.facts import ModelFileFacts\n"
        "heavy = {'torch', 'gguf', 'tokenizers', 'numpy'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "facts, ref = ModelFileFacts(RuntimeConfig()), ModelRef(sys.argv[1])\n"
        "print(facts.context_tokens(ref, None), facts.count_tokens(ref, None, 'hello world'), 'torch' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(tiny_gguf)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["512", "2", "False"]


def test_a_prompt_that_cannot_fit_is_told_by_the_file_of_its_model(tmp_path: Path, config: RuntimeConfig) -> None:
    """From the file's header to the diagnostic, exact to the token."""
    write_tiny_gguf(tmp_path / "m.gguf", shape=TinyShape(max_context_tokens=2500))
    agents = {"a": Agent("a", model=ModelRef("m.gguf"))}

    def found(size: int) -> list[str]:
        action = Action.llm("ask", "x" * size, agent="a")
        dag = Dag("d", {"ask": action}, {}, agents=agents, base_dir=tmp_path)
        return [problem.message for problem in context_problems(dag, ModelFileFacts(config))]

    assert found(2500) == []
    assert found(2501) == [
        "the prompt of action 'ask' has at least 2500 tokens before anything is put into it; the context of model "
        "'m.gguf' holds 2500, answer included"
    ]


_PARTS = [
    " environm",
    " internat",
    "ment",
    "onal",
    "ommunication",
    " and so",
    " ",
    "\n\n",
    ".",
    " 12",
    "user's",
    "Straße",
]
"""Half words that are several tokens alone and one together with a value beside them."""
_PIECES = st.lists(st.sampled_from(_PARTS) | st.text(max_size=4), max_size=4).map(
    lambda parts: re.sub(r"[{}\r]", "", "".join(parts))
)
_VALUES = st.sampled_from(["", "ent", "ional", "environ", "internati", "c", " ", "\n", "'s", "1"]) | st.text(max_size=4)


@pytest.mark.model
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fixed=st.lists(_PIECES, min_size=1, max_size=3), values=st.lists(_VALUES, min_size=2, max_size=2))
@example(fixed=["so much for the environm", ""], values=["ent", ""])
@example(fixed=["", "ommunication and so"], values=["c", ""])
@example(fixed=[" internationally"], values=["", ""])
def test_no_value_makes_a_prompt_shorter_than_its_fixed_part(
    model_path: Path, default_facts: ModelFileFacts, fixed: list[str], values: list[str]
) -> None:
    """Whatever is put into a template, and however it melts with the text around it, the count of the fixed part holds."""
    template = Template.parse("".join(f"{{{{ inputs.v{i} }}}}{text}" if i else text for i, text in enumerate(fixed)))
    rendered = template.render({"inputs": {f"v{i + 1}": value for i, value in enumerate(values)}, "actions": {}})
    num_fixed = sum(default_facts.count_tokens(None, None, text) or 0 for text in fixed_texts(template))
    assert num_fixed <= (default_facts.count_tokens(None, None, rendered) or 0)


@pytest.fixture(scope="module")
def default_facts(model_path: Path) -> ModelFileFacts:
    return ModelFileFacts(RuntimeConfig(cache_dir=model_path.parent.parent))
