"""Parses the address of a broker."""

from __future__ import annotations

from consumer.addresses import addresses

from ..errors import ConfigError


def parse_broker_address(option: str, text: object) -> tuple[str, int]:
    """Parse HOST:PORT into host and port. Raises a ConfigError that names `option` for any other value."""
    try:
        parsed = addresses(text) if isinstance(text, str) and ":" in text else []
    except ConfigError:
        parsed = []
    if len(parsed) != 1:
        raise ConfigError(option, text, "HOST:PORT of one broker, such as 127.0.0.1:9092")
    return parsed[0]
