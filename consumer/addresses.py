"""Parses `bootstrap_servers` (a string, or a list of strings) into pairs of host and port."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import Any

from kproto.errors import ConfigError

from .security.option_names import PROTOCOLS
from .security.secret import mask_logins

DEFAULT_PORT = 9092
# The characters allowed in a host: those of Java's Utils.HOST_PORT_PATTERN, and the letters of every
# alphabet, for internationalized domain names.
_HOST = re.compile(r"[\w.:%-]+")
_ALLOWED = 'HOST:PORT, several with commas between them, or a list of such strings; for IPv6 "[::1]:9092"'
_OPTION_HINT = '; options are given each by its name, with "_" for ".", as client_id="me"'


def addresses(bootstrap_servers: str | Iterable[str], security: Any = None) -> list[tuple[str, int]]:
    """Return [(host, port), ...]. Raise ConfigError for a string that is not an address.

    If an address begins with PROTOCOL://, PROTOCOL must be the client's security protocol
    (`consumer.security.Security`).
    """
    protocol = "PLAINTEXT" if security is None else security.protocol
    servers: Any = bootstrap_servers
    masked_servers = mask_logins(servers)
    if isinstance(servers, str):
        servers = servers.split(",")
    elif isinstance(servers, Mapping):
        raise ConfigError("bootstrap_servers", masked_servers, f"{_ALLOWED}{_OPTION_HINT}")
    elif isinstance(servers, bytes) or not isinstance(servers, Iterable):
        raise ConfigError("bootstrap_servers", masked_servers, _ALLOWED)
    entries: list[Any] = list(servers)  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(text, str) for text in entries):
        raise ConfigError("bootstrap_servers", masked_servers, _ALLOWED)
    parsed = [_parse_address(text.strip(), masked_servers, protocol) for text in entries if text.strip()]
    if not parsed:
        raise ConfigError("bootstrap_servers", masked_servers, _ALLOWED)
    return parsed


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _parse_address(text: str, masked_servers: object, protocol: str) -> tuple[str, int]:
    """Parse one address, such as PLAINTEXT://HOST:PORT, [IPV6]:PORT or HOST.

    Errors show `masked_servers`: all addresses, with user names and passwords masked.
    """
    if "://" in text:
        prefix, text = text.split("://", 1)
        if prefix.upper() not in PROTOCOLS:
            allowed = f"{_ALLOWED}; what may stand in front of :// is {', '.join(PROTOCOLS)}"
            raise ConfigError("bootstrap_servers", masked_servers, allowed)
        if prefix.upper() != protocol:
            allowed = f"with security_protocol={prefix.upper()!r}, which is {protocol!r} here"
            raise ConfigError("bootstrap_servers", masked_servers, allowed)
    if "@" in text:
        allowed = f"{_ALLOWED}; names and passwords are sasl_username and sasl_password"
        raise ConfigError("bootstrap_servers", masked_servers, allowed)
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")) or not _is_ipv6(host):
            raise ConfigError("bootstrap_servers", masked_servers, _ALLOWED)
        port = port.removeprefix(":")
    elif text.count(":") > 1:
        raise ConfigError("bootstrap_servers", masked_servers, _ALLOWED)
    else:
        host, _, port = text.partition(":")
    is_port = not port or (port.isascii() and port.isdigit() and len(port) < 10)
    if not _HOST.fullmatch(host) or not is_port or not 0 < int(port or DEFAULT_PORT) < 65536:
        raise ConfigError("bootstrap_servers", masked_servers, _ALLOWED)
    return host, int(port or DEFAULT_PORT)
