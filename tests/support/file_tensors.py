"""Matrices as model files store them, made of random numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from agentrt.inference.cpu.model import FileTensor

Floats = npt.NDArray[np.float32]
K_TYPES = {
    # Where the halves lie in a block: scale, and minimum where there is one.
    GGMLQuantizationType.Q4_K: (0, 2),
    GGMLQuantizationType.Q5_K: (0, 2),
    GGMLQuantizationType.Q6_K: (208,),
}
TYPES = (
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q4_0,
    GGMLQuantizationType.Q4_1,
    GGMLQuantizationType.Q5_0,
    GGMLQuantizationType.Q5_1,
    GGMLQuantizationType.Q8_0,
    *K_TYPES,
)


def block_values(kind: GGMLQuantizationType) -> int:
    return GGML_QUANT_SIZES[kind][0]


def random_tensor(kind: GGMLQuantizationType, rows: int, cols: int, seed: int = 0) -> tuple[FileTensor, Floats]:
    """Return a matrix, and the weights that its bytes mean."""
    generator = np.random.default_rng(seed)
    if kind in K_TYPES:
        values, size = GGML_QUANT_SIZES[kind]
        blocks = generator.integers(0, 256, (rows * cols // values, size), np.uint8)
        for at in K_TYPES[kind]:
            scales = generator.uniform(1e-4, 3e-3, len(blocks)).astype(np.float16)
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
        data = blocks.reshape(rows, -1)
    else:
        weights = generator.normal(0, 0.3, (rows, cols)).astype(np.float32)
        data = weights if kind is GGMLQuantizationType.F32 else quantize(weights, kind)
    meant = dequantize(data, kind).reshape(rows, cols).astype(np.float32)
    return FileTensor(np.ascontiguousarray(data).view(np.uint8).reshape(-1), int(kind), rows, cols), meant


def quantised_rows(values: Floats) -> Floats:
    """Return rows as the step sees them before a quantised matrix: whole numbers of -127..127 with a scale per 32."""
    blocks = values.reshape(len(values), -1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
    return (np.rint(blocks * inverse) * (largest * np.float32(1 / 127))).reshape(values.shape)
