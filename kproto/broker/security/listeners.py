"""The listeners of a broker: security protocol, host and port.

listener = Listener.parse("SASL_SSL://127.0.0.1:9093")
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from ...addresses import address_text
from ...errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ALLOWED_TEXTS: Final = (
    f"allowed: HOST:PORT, or PROTOCOL://HOST:PORT with one of {', '.join(PROTOCOLS)}; port 0 is any free port"
)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener; `port` 0 is any free port."""

    protocol: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Parse PROTOCOL://HOST:PORT, or HOST:PORT for PLAINTEXT. Raises ConfigError for any other text."""
        protocol, separator, address = text.rpartition("://")
        host, colon, port = address.rpartition(":")
        protocol = protocol.upper() if separator else "PLAINTEXT"
        if port.isdecimal() and int(port) > 65535:
            raise ConfigError("listen", text, "allowed: a port up to 65535; 0 is any free port")
        is_bracketed = host.startswith("[") and host.endswith("]")
        is_ambiguous = "," in host or "@" in host or (":" in host and not is_bracketed)
        if protocol not in PROTOCOLS or not colon or not port.isdecimal() or is_ambiguous:
            raise ConfigError("listen", text, _ALLOWED_TEXTS)
        return cls(protocol, host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def text(self) -> str:
        """The listener as PROTOCOL://HOST:PORT, which `parse` accepts."""
        return f"{self.protocol}://{address_text(self.host, self.port)}"

    @property
    def tls(self) -> bool:
        """Whether connections to this listener use TLS."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether this listener authenticates clients with SASL."""
        return self.protocol.startswith("SASL")


def allowed_addresses(error: OSError) -> str:
    """Return a hint for the user if the broker cannot listen on an address because of `error`."""
    if error.errno == errno.EADDRINUSE:
        return "the address is in use; use another port, or 127.0.0.1:0 for any free port"
    # On Linux, negative error numbers come from getaddrinfo: the host name cannot be resolved.
    is_unknown_host = error.errno is not None and error.errno < 0
    if error.errno == errno.EADDRNOTAVAIL or is_unknown_host:
        return (
            "allowed: an address of the broker's own host, such as 127.0.0.1:9092, or 0.0.0.0:9092 for all "
            "of them"
        )
    return f"allowed: an address that the broker's own host can listen on ({error.strerror or error})"
