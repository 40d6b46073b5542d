"""Run the tests of the C++ step under AddressSanitizer and UndefinedBehaviorSanitizer.

    python scripts/sanitize_cpu.py

It compiles the library with both into a temporary folder and runs tests/inference/cpu in a process that loads their
run-time first, and the C++ one with it: without that a thrown exception ends in a fault of the sanitizer's own. Needs GCC.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentrt.inference.cpu import build

ROOT = Path(__file__).parent.parent
FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
# The tests take the library from here instead of building one.
RUN_TESTS = """
import sys
from pathlib import Path
import pytest
import agentrt.inference.cpu.library as library
library.find_library = lambda: Path(sys.argv[1])
sys.exit(pytest.main(["tests/inference/cpu", "-q", "-s", "-x", "--timeout=600", "--tb=short"]))
"""


def main() -> int:
    compiler = build.find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / build.LIBRARY_NAME
        build.build_library(target, compiler, extra_flags=FLAGS)
        run_times = [_path_of(compiler, name) for name in ("libasan.so", "libstdc++.so")]
        # Python keeps what it allocates until it ends, which is no leak of the library's.
        environment = {**os.environ, "LD_PRELOAD": " ".join(run_times), "ASAN_OPTIONS": "detect_leaks=0"}
        command = [sys.executable, "-c", RUN_TESTS, str(target)]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _path_of(compiler: str, name: str) -> str:
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
