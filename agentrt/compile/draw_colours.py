"""The colours of pictures: one hue for each agent or type, told apart on a light ground and on a dark one.

Hues have the middling lightness of a pen, so that a stroke shows on either ground; areas are the same hue, nearly
transparent. Neighbours in the list are far apart on the colour wheel, and go round again after the last: the name in every
box says who it is anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

HUES = (
    "#3b82f6",
    "#ea7a1c",
    "#16a34a",
    "#c026d3",
    "#0d9fb8",
    "#dc4a4a",
    "#8b63f0",
    "#8f8a12",
    "#db2f81",
    "#64748b",
)


def colours_of(families: Sequence[str]) -> dict[str, str]:
    """Return the hue of each family, in turn."""
    return {family: HUES[index % len(HUES)] for index, family in enumerate(families)}


def pale(hue: str) -> str:
    """Return a hue mixed with much white, for formats that know no transparent areas."""
    channels = (int(hue[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(channel * 0.14 + 255 * 0.86):02x}" for channel in channels)
