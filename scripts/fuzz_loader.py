"""Throw bytes at the loader until it breaks: whatever they are, the answer must be a Dag or diagnostics, and soon.

    python scripts/fuzz_loader.py --seconds 60 [--corpus FOLDER] [FILE ...]

atheris (libFuzzer for Python; ``pip install -e '.[fuzz]'``) follows which branches of agentrt an input reaches and keeps
the inputs that reach new ones. It starts from the files in ``dags/`` and from a corpus of earlier finds, to which it adds.
An input that raises, runs longer than a minute or takes more than 2 GB is written to ``crash-*``, ``timeout-*`` or
``oom-*`` in the corpus folder, and the exit code is not 0; name the FILE to run just that input again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["agentrt.declare", "agentrt.compile"]):
    from agentrt.compile.check import check
    from agentrt.compile.plan import plan
    from agentrt.declare.dag_file import read_dag
    from agentrt.errors import DeclarationError, Severity

WORDS = (
    "name:", "inputs:", "outputs:", "actions:", "agents:", "prompt:", "uses:", "tool/", "dag/", "agent/", "if:", "with:",
    "needs:", "retry:", "timeout:", "choices:", "for_each:", "edges:", "{{ inputs.", "{{ actions.", ".output }}",
    "{% for x in", "{% endfor %}", "{% if", " | default(", " | join", "&a ", "*a", "<<:", "!!str ", "|\n  ", ">-\n  ", "? ",
    "- ", "...\n", "---\n", "%YAML 1.2", "%TAG ! ", "1s", "true", "null", "0x", ".inf", " && ", " == ", ".all(x, ",
    ".map(x, ", "size(", "\u2028",
)  # fmt: skip


def read_check_and_plan(data: bytes) -> None:
    """Go all the way a file goes before anything runs, and back to text."""
    reading = read_dag(data)
    if reading.dag is None:
        if not reading.diagnostics:
            raise AssertionError("neither a Dag nor a diagnostic")
        return
    found = check(reading.dag, unread_actions=reading.unread_actions)
    if reading.diagnostics or any(diagnostic.severity is Severity.ERROR for diagnostic in found):
        return
    plan(reading.dag)
    try:
        text = reading.dag.to_yaml()
    except DeclarationError:
        return  # a file has no word for everything
    if read_dag(text).dag != reading.dag:
        raise AssertionError(f"written and read again it is another Dag:\n{text}")


def seed(corpus: Path) -> None:
    """Copy the example files into the corpus, where libFuzzer looks for its first inputs."""
    for path in sorted((Path(__file__).parent.parent / "dags").rglob("*.yaml")):
        shutil.copyfile(path, corpus / f"seed-{path.parent.name}-{path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir()) / "agentrt-fuzz-loader")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    for path in arguments.files:
        read_check_and_plan(path.read_bytes())
    if arguments.files:
        print(f"{len(arguments.files)} inputs gave a Dag or diagnostics")
        return
    corpus: Path = arguments.corpus
    corpus.mkdir(parents=True, exist_ok=True)
    seed(corpus)
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS), encoding="ascii")
        options = [
            f"-max_total_time={arguments.seconds}",
            "-timeout=60",
            "-rss_limit_mb=2048",
            "-max_len=16384",
            f"-dict={words}",
            f"-artifact_prefix={corpus}/",
        ]
        atheris.Setup([sys.argv[0], *options, str(corpus)], read_check_and_plan)
        atheris.Fuzz()


def _escaped(word: str) -> str:
    """Write a word the way libFuzzer's dictionaries want it."""
    plain = (
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\' else f"\\x{byte:02x}" for byte in word.encode()
    )
    return "".join(plain)


if __name__ == "__main__":
    main()
