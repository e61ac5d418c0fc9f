"""Where a proxy leads to, as it is written."""

from __future__ import annotations

from consumer.addresses import addresses

from ..errors import ConfigError


def place(option: str, text: object) -> tuple[str, int]:
    """The host and the port of HOST:PORT. Raises ConfigError, which names the option."""
    try:
        found = addresses(text) if isinstance(text, str) and ":" in text else []
    except ConfigError:
        found = []
    if len(found) != 1:
        raise ConfigError(option, text, "HOST:PORT of one broker, such as 127.0.0.1:9092")
    return found[0]
