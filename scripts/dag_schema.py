"""Write the JSON Schema of DAG files into the package, or check that it is the one the code makes.

python scripts/dag_schema.py            write agentrt/declare/dag.schema.json
python scripts/dag_schema.py --check    exit 1 when it differs
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentrt.declare.file_schema import file_schema_text

FILE = Path(__file__).resolve().parent.parent / "agentrt" / "declare" / "dag.schema.json"


def main() -> None:
    text = file_schema_text()
    if sys.argv[1:] == ["--check"]:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{FILE} is not what the code makes; run: python scripts/dag_schema.py")
        print("dag.schema.json is what the code makes")
    else:
        FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
