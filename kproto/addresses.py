"""Network addresses as text, for errors, logs and `bootstrap_servers`."""

from __future__ import annotations


def address_text(host: str, port: int) -> str:
    """Return HOST:PORT, or [HOST]:PORT for an IPv6 host, as `bootstrap_servers` accepts it (RFC 3986)."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """Return `host` as it is written before a colon and a port: an IPv6 address is put in brackets."""
    return f"[{host}]" if ":" in host else host
