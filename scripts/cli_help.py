"""Write the help of every command into docs/cli.md, or check that it is the real one.

    python scripts/cli_help.py            rewrite the blocks
    python scripts/cli_help.py --check    exit 1 when they differ

A block is a fence that follows <!-- help: COMMAND --> in docs/cli.md, for instance <!-- help: agentrt run -->.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
BLOCK = re.compile(r"(<!-- help: agentrt(?P<command>[a-z ]*) -->\n```text\n)(?P<help>.*?)(```)", re.DOTALL)


def real_help(command: str) -> str:
    environ = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    output = subprocess.run(
        [sys.executable, "-m", "agentrt", *command.split(), "--help"],
        check=True,
        capture_output=True,
        text=True,
        env=environ,
    ).stdout
    return "\n".join(line.rstrip() for line in output.strip("\n").splitlines())


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if not BLOCK.search(page):
        raise SystemExit(f"{PAGE}: no help blocks found")
    renewed = BLOCK.sub(lambda m: m.group(1) + real_help(m["command"]) + "\n" + m.group(4), page)
    if sys.argv[1:] == ["--check"]:
        if renewed != page:
            raise SystemExit(f"{PAGE} does not show the real help; run: python scripts/cli_help.py")
        print("docs/cli.md shows the real help")
    else:
        PAGE.write_text(renewed, encoding="utf-8")


if __name__ == "__main__":
    main()
