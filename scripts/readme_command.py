"""Read commands out of README.md, so that what it promises is what gets run.

    python3 scripts/readme_command.py run|test        print the command under <!-- command: NAME -->
    python3 scripts/readme_command.py check-output F  compare a real output with the one the README shows

Needs nothing but the standard library: it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def fenced_block(name: str) -> str:
    """Return the fenced code block that follows ``<!-- NAME -->``."""
    found = re.search(
        rf"<!-- {re.escape(name)} -->\s*```[a-z]*\n(.*?)\n```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    if not found:
        raise SystemExit(f"{README}: no fenced block after <!-- {name} -->")
    return found.group(1)


def shape(text: str) -> list[str]:
    """Reduce an output to what must not vary: its words, without figures, bars and spacing."""
    # A run's id is six random bytes, and a narrow terminal cuts a line where it ends.
    text = re.sub(r"\b[0-9a-f]{12}\b|\S*…", "", text)
    text = re.sub(r"[─-▟#=|·.:()\-]+", " ", re.sub(r"\d+(\.\d+)?( ?(ms|s))?\b", "", text))
    return re.findall(r"[A-Za-z_]{3,}", text)


def main() -> None:
    match sys.argv[1:]:
        case ["run" | "test" as name]:
            command = fenced_block(f"command: {name}")
            if "\n" in command:
                raise SystemExit(f"{README}: the {name} command is to be one line")
            print(command)
        case ["check-output", path]:
            shown, real = shape(fenced_block("output: run")), shape(Path(path).read_text(encoding="utf-8"))
            missing = sorted(set(shown) - set(real))
            if missing:
                raise SystemExit(f"{README} shows words that the real output lacks: {', '.join(missing)}")
            print("the output in the README is the real one")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
