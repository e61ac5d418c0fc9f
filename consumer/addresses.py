"""`bootstrap_servers`, as people write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kproto.errors import ConfigError

DEFAULT_PORT = 9092
_ALLOWED = 'HOST:PORT, several with commas between them, or a list of such texts; for IPv6 "[::1]:9092"'


def addresses(bootstrap_servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """[(host, port), ...]; raises ConfigError for anything that isn't an address."""
    whole: Any = bootstrap_servers
    if isinstance(whole, str):
        whole = whole.split(",")
    elif isinstance(whole, bytes | Mapping) or not isinstance(whole, Iterable):
        raise ConfigError("bootstrap_servers", bootstrap_servers, _ALLOWED)
    texts: list[Any] = list(whole)  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError("bootstrap_servers", bootstrap_servers, _ALLOWED)
    found = [_address(text.strip(), bootstrap_servers) for text in texts if text.strip()]
    if not found:
        raise ConfigError("bootstrap_servers", bootstrap_servers, _ALLOWED)
    return found


def _address(text: str, whole: object) -> tuple[str, int]:
    if "://" in text:
        text = text.split("://", 1)[1]
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") > 1:
        raise ConfigError("bootstrap_servers", whole, _ALLOWED)
    else:
        host, _, port = text.partition(":")
    digits = not port or (port.isascii() and port.isdigit())
    if not host or not digits or not 0 < int(port or DEFAULT_PORT) < 65536:
        raise ConfigError("bootstrap_servers", whole, _ALLOWED)
    return host, int(port or DEFAULT_PORT)
