"""Connections through a SOCKS or HTTP proxy, for the option `dialer`; needs the extra `proxy`.

    Consumer("broker:9092", dialer=ProxyDialer("socks5://alice:secret@proxy:1080"))

The proxy resolves the names of the brokers. The package python-socks determines the supported proxy
protocols.
"""

from __future__ import annotations

import socket
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from kproto.addresses import address_text
from kproto.errors import ConfigError, MissingExtra

from .security.secret import HIDDEN

# The default timeout in seconds for connecting to the proxy and through it: Java's default of
# socket.connection.setup.timeout.max.ms.
TIMEOUT_S: Final = 30.0
_ALLOWED: Final = "socks5://, socks4:// or http://, then [USER:PASSWORD@]HOST:PORT"


class ProxyDialer:
    """A dialer for the proxy at `url`: socks5://, socks4:// or http://, then [USER:PASSWORD@]HOST:PORT.

    An HTTP proxy receives CONNECT requests. `timeout` limits the time (s) for opening one connection. No repr
    and no error contains the password. Thread-safe.

    Raises ConfigError for an invalid URL, and MissingExtra if the package python-socks is missing.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_S) -> None:
        scheme, host, port = _parse_url(url)
        try:
            proxy: Any = import_module("python_socks.sync").Proxy
        except ImportError:
            raise MissingExtra("consumer.proxies.ProxyDialer", "python-socks", "proxy") from None
        # The host names are sent to the proxy: a client behind a proxy often cannot resolve them.
        self._proxy = proxy.from_url(url, rdns=None if scheme == "http" else True)
        self._timeout = timeout
        # The name by which errors refer to this dialer.
        self.name = f"{scheme}://{address_text(host, port)}"

    def __repr__(self) -> str:
        return f"ProxyDialer({self.name!r})"

    def __call__(self, host: str, port: int) -> socket.socket:
        """Return a socket that the proxy has connected to the broker at host:port."""
        sock: socket.socket = self._proxy.connect(dest_host=host, dest_port=port, timeout=self._timeout)
        return sock


def _parse_url(url: str) -> tuple[str, str, int]:
    """Return the scheme, host and port of a proxy's URL.

    The ConfigError for an invalid URL hides the URL, because it may contain a password.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("socks5", "socks4", "http") and parts.hostname and parts.port:
            return parts.scheme, parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        pass
    raise ConfigError("url", HIDDEN, _ALLOWED)
