"""Codes that have a meaning and an example, and whose check is not written yet.

Tests over examples take these as strict expected failures: one that begins to work fails its test until it is taken out
of here.
"""

from __future__ import annotations

from agentrt.declare.codes import Code

PENDING: frozenset[Code] = frozenset()

PENDING_MISTAKES: frozenset[str] = frozenset()
"""Names of files in ``tests/compile/mistakes``."""
