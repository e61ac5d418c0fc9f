"""Where a broker listens, and what a client must do to be heard there.

listener = Listener.read("SASL_SSL://127.0.0.1:9093")
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from ...errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ALLOWED: Final = f"PROTOCOL://HOST:PORT, with one of {', '.join(PROTOCOLS)}; port 0: any"


@dataclass(frozen=True, slots=True)
class Listener:
    """One place; `port` 0 means any free one."""

    protocol: str
    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Listener:
        """From PROTOCOL://HOST:PORT; without a protocol it is PLAINTEXT. Raises ConfigError."""
        protocol, found, place = text.rpartition("://")
        host, colon, port = place.rpartition(":")
        protocol = protocol.upper() if found else "PLAINTEXT"
        if port.isdecimal() and int(port) > 65535:
            raise ConfigError("listen", text, "a port up to 65535; 0: any")
        several = "," in host or (":" in host and not (host.startswith("[") and host.endswith("]")))
        if protocol not in PROTOCOLS or not colon or not port.isdecimal() or several:
            raise ConfigError("listen", text, _ALLOWED)
        return cls(protocol, host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def text(self) -> str:
        """What `read` reads."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def not_listening(error: OSError) -> str:
    """What is allowed, where an address can't be listened on."""
    if error.errno == errno.EADDRINUSE:
        return "somebody listens there already; 127.0.0.1:0 takes any free port"
    unknown = error.errno is not None and error.errno < 0  # a code of getaddrinfo's
    if error.errno == errno.EADDRNOTAVAIL or unknown:
        return "an address of this machine, such as 127.0.0.1:9092 or, for all of its addresses, 0.0.0.0:9092"
    return f"an address that can be listened on ({error.strerror or error})"
