"""Check that starting agentrt stays cheap: `import agentrt` < 150 ms and without torch, `agentrt --help` < 300 ms.

Takes the best of several fresh processes: on a shared machine the fastest run is the one least disturbed, and a real
regression slows that one too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HEAVY = ("torch", "triton", "transformers", "bm25s", "ray", "faiss", "jieba")


def best_of(command: list[str], times: int = 7) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    bare = best_of([sys.executable, "-c", "pass"])
    imported = best_of([sys.executable, "-c", "import agentrt"]) - bare
    helped = best_of([str(Path(sys.executable).with_name("agentrt")), "--help"])
    loaded = subprocess.run(
        [sys.executable, "-c", "import agentrt, sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    print(f"import agentrt: {imported * 1e3:.0f} ms over a bare interpreter; agentrt --help: {helped * 1e3:.0f} ms")
    heavy = sorted(set(HEAVY) & set(loaded))
    if heavy:
        raise SystemExit(f"import agentrt loads {', '.join(heavy)}")
    if imported > 0.150:
        raise SystemExit("import agentrt takes more than 150 ms")
    if helped > 0.300:
        raise SystemExit("agentrt --help takes more than 300 ms")


if __name__ == "__main__":
    main()
