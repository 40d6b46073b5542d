"""The C++ library as Python sees it: its functions and structures, declared once."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentrt.errors import EngineError
from agentrt.inference.cpu.build import find_library

ABI = 1


class Tensor(ctypes.Structure):
    """A matrix or vector in a model file's own bytes; all zeros: there is none."""

    _fields_ = (("data", c_void_p), ("type", c_int32), ("rows", c_int32), ("cols", c_int32))


LAYER_TENSORS = (
    "attention_norm",
    "query",
    "key",
    "value",
    "query_norm",
    "key_norm",
    "attention_output",
    "attention_post_norm",
    "ffn_norm",
    "gate",
    "up",
    "down",
    "ffn_post_norm",
)


class Layer(ctypes.Structure):
    _fields_ = (*((name, Tensor) for name in LAYER_TENSORS), ("window", c_int32), ("rotary", c_int32))


class Description(ctypes.Structure):
    _fields_ = (
        *(
            (name, c_int32)
            for name in (
                "num_layers",
                "hidden_size",
                "num_heads",
                "num_kv_heads",
                "head_dim",
                "ffn_size",
                "vocab_size",
                "gate",
                "has_paired_rows",
            )
        ),
        *((name, c_float) for name in ("norm_eps", "attention_scale", "embedding_scale")),
        ("num_rotaries", c_int32),
        ("frequencies", POINTER(c_double)),
        ("layers", POINTER(Layer)),
        *((name, Tensor) for name in ("embedding", "norm", "head")),
    )


class Step(ctypes.Structure):
    _fields_ = (
        *((name, c_int32) for name in ("num_rows", "num_sequences", "num_logits", "num_tokens")),
        *(
            (name, c_void_p)
            for name in (
                "token_ids",
                "first_rows",
                "num_computed",
                "table_starts",
                "block_tables",
                "logits_rows",
                "wants_logits",
                "logits",
                "best_ids",
                "best_logits",
                "log_normalisers",
            )
        ),
    )


class Error(ctypes.Structure):
    _fields_ = (("text", c_char * 256),)


_FUNCTIONS = {
    "abi": (c_int32, ()),
    "levels": (c_char_p, ()),
    "model_new": (c_void_p, (POINTER(Description), c_char_p, POINTER(Error))),
    "model_free": (None, (c_void_p,)),
    "model_bytes": (c_size_t, (c_void_p,)),
    "block_bytes": (c_size_t, (c_void_p,)),
    "cache_new": (c_void_p, (c_void_p, c_int32, POINTER(Error))),
    "cache_free": (None, (c_void_p,)),
    "cache_copy": (c_int32, (c_void_p, c_int32, c_int32, POINTER(Error))),
    "cache_poison": (c_int32, (c_void_p, c_int32, POINTER(Error))),
    "stepper_new": (c_void_p, (c_void_p, c_int32, POINTER(Error))),
    "stepper_free": (None, (c_void_p,)),
    "run": (c_int32, (c_void_p, c_void_p, POINTER(Step), POINTER(Error))),
    "multiply": (c_int32, (c_char_p, POINTER(Tensor), c_void_p, c_int32, c_void_p, POINTER(Error))),
    "unpack": (c_int32, (POINTER(Tensor), c_void_p, POINTER(Error))),
}


class Library:
    """The functions of one build; each is an attribute without the ``agentrt_cpu_`` of its name."""

    def __init__(self, path: Path) -> None:
        """Raises EngineError: it cannot be loaded, or is of another version."""
        try:
            library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, f"agentrt_cpu_{name}")
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
        except (OSError, AttributeError) as error:
            raise EngineError(
                f"{path}: is no library of this engine: {error}; delete it, and it is built anew"
            ) from error
        if (abi := library.agentrt_cpu_abi()) != ABI:
            raise EngineError(
                f"{path}: has version {abi} of the interface, {ABI} is needed; delete it, and it is built anew"
            )
        self.levels_here: tuple[str, ...] = tuple(library.agentrt_cpu_levels().decode().split())
        """The kernels this processor can run, best first."""

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for the type checker: all are set in __init__
        raise AttributeError(name)


@functools.cache
def load_library() -> Library:
    """Return the library, built before if need be.

    Raises:
        EngineError: there is none for this machine and it cannot be built; the text says why.
    """
    return Library(find_library())


def raise_for(error: Error) -> None:
    raise EngineError(f"the C++ step refused: {error.text.decode(errors='replace')}")


def address(array: npt.NDArray[np.generic]) -> int:
    """Return where the elements of an array lie. The caller keeps the array alive."""
    assert array.flags.c_contiguous
    place: int = array.__array_interface__["data"][0]  # `array.ctypes.data` is three times as slow
    return place
