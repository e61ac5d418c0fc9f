"""`bootstrap_servers`, as people write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kproto.errors import ConfigError

from .security.option_names import PROTOCOLS

DEFAULT_PORT = 9092
_ALLOWED = 'HOST:PORT, several with commas between them, or a list of such texts; for IPv6 "[::1]:9092"'
_OPTIONS = '; options are given each by its name, with "_" for ".", as client_id="me"'


def addresses(bootstrap_servers: str | Iterable[str], security: Any = None) -> list[tuple[str, int]]:
    """[(host, port), ...]; raises ConfigError for anything that isn't an address.

    PROTOCOL:// may stand in front, if it is what the client's `consumer.security.Security` says anyway.
    """
    protocol = "PLAINTEXT" if security is None else security.protocol
    whole: Any = bootstrap_servers
    if isinstance(whole, str):
        whole = whole.split(",")
    elif isinstance(whole, Mapping):
        raise ConfigError("bootstrap_servers", bootstrap_servers, f"{_ALLOWED}{_OPTIONS}")
    elif isinstance(whole, bytes) or not isinstance(whole, Iterable):
        raise ConfigError("bootstrap_servers", bootstrap_servers, _ALLOWED)
    texts: list[Any] = list(whole)  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError("bootstrap_servers", bootstrap_servers, _ALLOWED)
    found = [_address(text.strip(), bootstrap_servers, protocol) for text in texts if text.strip()]
    if not found:
        raise ConfigError("bootstrap_servers", bootstrap_servers, _ALLOWED)
    return found


def _address(text: str, whole: object, protocol: str) -> tuple[str, int]:
    if "://" in text:
        said, text = text.split("://", 1)
        if said.upper() not in PROTOCOLS:
            allowed = f"{_ALLOWED}; what may stand in front of :// is {', '.join(PROTOCOLS)}"
            raise ConfigError("bootstrap_servers", whole, allowed)
        if said.upper() != protocol:
            allowed = f"with security_protocol={said.upper()!r}, which is {protocol!r} here"
            raise ConfigError("bootstrap_servers", whole, allowed)
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") > 1:
        raise ConfigError("bootstrap_servers", whole, _ALLOWED)
    else:
        host, _, port = text.partition(":")
    digits = not port or (port.isascii() and port.isdigit() and len(port) < 10)
    if not host or not digits or not 0 < int(port or DEFAULT_PORT) < 65536:
        raise ConfigError("bootstrap_servers", whole, _ALLOWED)
    return host, int(port or DEFAULT_PORT)
