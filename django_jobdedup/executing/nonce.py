"""The nonce of one delivery."""

from __future__ import annotations

import secrets


def new_nonce() -> str:
    """Return 16 random hexadecimal characters: no two deliveries of one id share a nonce."""
    return secrets.token_hex(8)
