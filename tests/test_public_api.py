"""What `import agentrt` promises."""

from __future__ import annotations

import subprocess
import sys

import agentrt


def test_every_public_name_is_there_and_in_its_module() -> None:
    """Each name of ``__all__`` loads, and is the one its module defines."""
    for name in agentrt.__all__:
        assert getattr(agentrt, name) is not None
        assert name in dir(agentrt)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Neither torch nor the network nor telemetry is loaded by an import, nor by declaring and checking a Dag."""
    program = """
import sys, agentrt
assert not {"torch", "httpx", "opentelemetry", "pydantic", "networkx", "jinja2", "celpy"} & set(sys.modules)
dag = agentrt.parse_dag('''
name: d
inputs: {q: string}
outputs: {a: "{{ actions.x.output }}"}
actions: {x: {prompt: "Say {{ inputs.q }}"}}
''')
assert agentrt.check(dag) == ()
assert not {"torch", "transformers", "tokenizers", "gguf"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
