"""Draw the Plans of the examples under dags/ into docs/pictures, or check that the pictures are the real ones.

python scripts/draw_examples.py            draw them
python scripts/draw_examples.py --check    exit 1 when one differs
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentrt.compile.check import check_file
from agentrt.compile.draw_svg import to_svg
from agentrt.compile.plan import plan
from agentrt.errors import DeclarationError
from agentrt.tools.builtin import builtin_tools
from agentrt.tools.registry import ToolRegistry

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"


def example_pictures() -> dict[str, str]:
    """Return the picture of each example by its file's name."""
    tools = ToolRegistry(builtin_tools())
    pictures = {}
    for path in sorted((ROOT / "dags").glob("*.yaml")):
        dag, diagnostics = check_file(path, tools)
        if dag is None:
            raise DeclarationError(diagnostics)
        pictures[f"{path.stem}.svg"] = to_svg(plan(dag, tools))
    return pictures


def main() -> None:
    pictures = example_pictures()
    kept = {path.name: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.svg")}
    if sys.argv[1:] == ["--check"]:
        different = sorted(name for name in pictures.keys() | kept.keys() if pictures.get(name) != kept.get(name))
        if different:
            told = ", ".join(different)
            raise SystemExit(f"docs/pictures: {told} differ from dags/; run: python scripts/draw_examples.py")
        print(f"docs/pictures shows the {len(pictures)} examples as they are")
        return
    PICTURES.mkdir(exist_ok=True)
    for name in kept.keys() - pictures.keys():
        (PICTURES / name).unlink()
    for name, picture in pictures.items():
        (PICTURES / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
