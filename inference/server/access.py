"""Who may ask: whoever holds the key, where there is one."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentrt.inference.server.api_error import ApiError


@dataclass(frozen=True, slots=True)
class Access:
    """``key``: what `Authorization: Bearer` must hold; None lets everybody in."""

    key: str | None = field(repr=False)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises ApiError: the key is missing or wrong."""
        if self.key is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.key.encode()):
            raise ApiError(401, "the API key is missing or wrong", kind="authentication_error", code="invalid_api_key")
