"""How large things may be, so that no file and no template can take a process down.

They are counts, not seconds: what fits once fits always, on any machine.
"""

from __future__ import annotations

MAX_TEXT_CHARS = 4 * 2**20
"""A rendered text, and any text made on the way."""
MAX_VALUE_NODES = 200_000
"""Parts of a value that is written as JSON or handed to a tool."""
MAX_VALUE_DEPTH = 100
MAX_VALUE_CHARS = 64 * 2**20
"""Text in a value that a template hands to a tool."""
MAX_WORK = 50_000_000
"""Characters and parts one rendering may touch; about a second of work at the very worst."""
MAX_RANGE = 10_000
MAX_INT_BITS = 4096

MAX_DIAGNOSTICS = 100
"""Mistakes told at once; a file with more is most likely no DAG file."""
MAX_NAMES_COMPARED = 1000
"""Known names among which the nearest to a misspelt one is looked for."""

MAX_FILE_BYTES = 2**20
MAX_YAML_NODES = 100_000
"""Keys, values and items of a DAG file, each alias counted as often as it is used."""
MAX_YAML_DEPTH = 64
MAX_FILE_GUARDS = 1000
MAX_FILE_GUARD_CHARS = 32 * 1024
"""Text of all guards of a file; reading one takes up to a tenth of a millisecond a character."""
MAX_FILE_TEMPLATES = 10_000
MAX_FILE_TEMPLATE_CHARS = 256 * 1024
"""Texts with expressions in them, all together, each alias counted as often as it is used."""
MAX_FILE_SCHEMA_PARTS = 5000
"""Values that the JSON Schemas of a file are made of."""
MAX_CHOICES = 1000
MAX_TEMPLATE_CHARS = 64 * 1024
"""A template with expressions in it; a text without any is bounded only by its file."""
MAX_TEMPLATE_DEPTH = 60
MAX_LOOP_DEPTH = 5
MAX_GUARD_CHARS = 4096
MAX_GUARD_DEPTH = 200
"""Levels of a guard's syntax tree; about eleven for each pair of parentheses."""
MAX_GUARD_PARTS = 50_000
"""Parts of the values one guard reads."""
MAX_GUARD_PASSES = 10_000
"""Passes of a guard's macros over lists, all together; each takes tens of microseconds."""
MAX_GUARD_MADE_CHARS = 50_000_000
"""Text that the macros of a guard could put together with ``+``."""
MAX_SUB_DAG_DEPTH = 8
"""How many files may use one another in a row."""
MAX_SUB_DAGS = 100
"""Files that one file may use, directly and through others."""
