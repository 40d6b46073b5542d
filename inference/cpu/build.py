"""Building the C++ step, when a wheel did not bring it.

It is compiled from the sources beside this file with the machine's own C++ compiler, once: the result lies in the cache
folder under a name made of the sources, the flags and the compiler, so that nothing stale is ever loaded. It needs no
headers but the compiler's. Kernels for each kind of processor are compiled with its own flags and chosen at run time, so a
library built here also runs elsewhere.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentrt.errors import EngineError

SOURCES = Path(__file__).parent / "native"
LIBRARY_NAME = "libagentrt_cpu.so"
# No contraction: a * b + c must be the same two roundings on every processor.
FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-pthread",
)
_X86_FLAGS = {
    "kernels_avx2": ("-mavx2", "-mfma", "-mf16c"),
    "kernels_avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
}
COMPILE_TIMEOUT_S = 300


def find_library() -> Path:
    """Return the library: the one that was installed, or that of the cache folder, built if it is not there.

    Raises:
        EngineError: there is no compiler, it failed, or there is no place for what it makes.
    """
    place = _library_place()
    if not place.exists():
        try:
            build_library(place, find_compiler())
        except OSError as error:
            raise EngineError(
                f"{place.parent}: the compiled CPU engine cannot be kept there: {error.strerror or error}; make the "
                "folder writable, or name another one in XDG_CACHE_HOME"
            ) from error
    return place


def needs_build() -> bool:
    """Return whether ``find_library`` would compile: there is a compiler, and nothing that it made before."""
    try:
        return not _library_place().exists()
    except EngineError:
        return False


def find_compiler() -> str:
    """Return the path of a C++ compiler.

    Raises:
        EngineError: there is none.
    """
    named = os.environ.get("CXX")
    for name in (named,) if named else ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            return path
    raise EngineError(
        f"no C++ compiler was found ({named or 'g++, clang++ or c++'}); install one for the fast CPU path"
    )


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "agentrt" / "native"


def build_library(target: Path, compiler: str, *, extra_flags: Sequence[str] = ()) -> None:
    """Compile all sources to ``target``, which appears whole or not at all.

    Raises:
        EngineError: the compiler failed; the text has the end of what it said.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="agentrt-build-", dir=target.parent) as name:
        folder = Path(name)
        sources = sorted(SOURCES.glob("*.cpp"))

        def compile_one(source: Path) -> Path:
            compiled = folder / f"{source.stem}.o"
            flags = (*FLAGS, *_flags_of(source), *extra_flags)
            _call([compiler, *flags, "-c", str(source), "-o", str(compiled)])
            return compiled

        with ThreadPoolExecutor(min(len(sources), os.cpu_count() or 1)) as pool:
            compiled = list(pool.map(compile_one, sources))
        built = folder / LIBRARY_NAME
        _call([compiler, "-shared", "-pthread", *extra_flags, "-o", str(built), *map(str, compiled)])
        built.replace(target)  # two processes that build at once leave one whole file


def _flags_of(source: Path) -> tuple[str, ...]:
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return _X86_FLAGS.get(source.stem, ()) if is_x86 else ()


def _call(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"compiling the CPU engine failed: {error}") from error
    if done.returncode != 0:
        raise EngineError(
            f"compiling the CPU engine failed: {' '.join(command[:1])} said: {done.stderr.strip()[-2000:]}"
        )


def _library_place() -> Path:
    """Return where the library is: installed beside the sources, or where it was built or would be."""
    installed = SOURCES.parent / LIBRARY_NAME
    return installed if installed.exists() else cache_folder() / f"{_fingerprint(find_compiler())}-{LIBRARY_NAME}"


@functools.cache
def _fingerprint(compiler: str) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".h", ".cpp"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    digest.update(repr((FLAGS, _X86_FLAGS, compiler, platform.machine(), sys.platform)).encode() + version)
    return digest.hexdigest()[:20]
