"""Send one HTTP request and return the response; used for schemas, tokens and signing keys.

Rules:

* The size of a response in bytes is limited, and so is the time for reading it. A compressed response is not
  decompressed.

* Redirects are followed only if the caller allows them. The Authorization header is not sent to another
  scheme, host or port.

* Error messages never contain a password, the query of a URL, or bytes of the response.

* Environment variables configure proxies (``https_proxy``, ``no_proxy``), as for Python's urllib.

The requests are sent by urllib3, which is imported at the first request.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urljoin, urlsplit

from .errors import KprotoError, MissingExtra

if TYPE_CHECKING:
    import ssl

# The timeout in seconds for connecting and for each read (Java: sasl.login.connect.timeout.ms and
# sasl.login.read.timeout.ms).
TIMEOUT_S: Final = 10.0
# The maximum time in seconds for reading the body of a response.
BODY_TIMEOUT_S: Final = 30.0
# The default limit on the size of a response, in bytes. Tokens and keys take a few KB.
MAX_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 16
_REDIRECT_STATUSES: Final = (301, 302, 303, 307, 308)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NOT_IN_ADDRESSES: Final = re.compile(r"[\x00-\x20\x7f]")


class HttpFailed(KprotoError, OSError):
    """An HTTP request failed, or its response was incomplete. `url` has no password and no query."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def text(self) -> str:
        return f"{self.url}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request. `url` is the address that sent it, without password and query."""

    url: str
    status: int
    reason: str
    body: bytes

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises ValueError for any other body, without showing it."""
        try:
            parsed: object = json.loads(self.body)
        except (ValueError, RecursionError):
            raise ValueError("the response is not JSON") from None
        if not isinstance(parsed, dict):
            raise ValueError("the response is not a JSON object")
        return cast("dict[str, Any]", parsed)


def request(
    method: str,
    url: str,
    *,
    feature: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
    redirects: int = 0,
    max_bytes: int = MAX_BYTES,
) -> Response:
    """Send a request and return the response, whatever its status.

    `feature` is the name of the caller's feature, for the message of MissingExtra. `context` is the TLS
    context. By default it trusts the system's certificates. `redirects` is the maximum number of redirects to
    follow.

    Raises HttpFailed if no complete response arrives, and MissingExtra if urllib3 is not installed.
    """
    try:
        import urllib3
    except ImportError:
        raise MissingExtra(feature, "urllib3", "security") from None
    headers = {"Accept-Encoding": "identity", **headers}
    while True:
        try:
            with _connection_pool(url, context) as pool:
                response = pool.urlopen(
                    method,
                    url,
                    body=body,
                    headers=headers,
                    redirect=False,
                    retries=False,
                    preload_content=False,
                )
                try:
                    is_redirect = response.status in _REDIRECT_STATUSES
                    location = response.headers.get("Location") if is_redirect else None
                    if location is None or not redirects:
                        content = _read_body(response, url, max_bytes)
                        return Response(shown(url), response.status, response.reason or "", content)
                finally:
                    response.close()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if isinstance(error, HttpFailed):
                raise
            raise HttpFailed(shown(url), _failure_reason(error)) from None
        redirects -= 1
        next_url = _redirect_url(url, location)
        if _origin(next_url) != _origin(url):
            headers = {name: text for name, text in headers.items() if name.lower() != "authorization"}
        url = next_url


def _redirect_url(url: str, location: str) -> str:
    """Return the address to which `url` redirects. Raises HttpFailed if that address is not HTTP(S)."""
    try:
        next_url = urljoin(url, location)
    except ValueError:
        next_url = ""
    if _origin(next_url)[0] not in _DEFAULT_PORTS:
        raise HttpFailed(shown(url), "the response redirects to an address that is not http or https")
    return next_url


def is_http_address(url: str) -> bool:
    """Return whether `url` is http://HOST or https://HOST, with a port from 1 to 65535 if it has one."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # `urlsplit` raises ValueError for an invalid port or an unpaired bracket.
        return False
    return has_host and parts.scheme in _DEFAULT_PORTS and _NOT_IN_ADDRESSES.search(url) is None


def shown(url: str) -> str:
    """Return an address for error messages, without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid address"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _origin(url: str) -> tuple[str, str, int]:
    """Return the scheme, host and port of an address. The scheme of an invalid address is empty."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", "", 0


def _connection_pool(url: str, context: ssl.SSLContext | None) -> Any:
    """Return a pool of connections, through a proxy if the environment sets one for the address."""
    from urllib.request import getproxies, proxy_bypass

    import urllib3
    from urllib3.util import parse_url

    scheme, host, _ = _origin(url)
    settings: dict[str, Any] = {"timeout": urllib3.Timeout(connect=TIMEOUT_S, read=TIMEOUT_S)}
    if scheme == "https":
        import ssl

        settings["ssl_context"] = context or ssl.create_default_context()
    proxy = getproxies().get(scheme)
    if not proxy or proxy_bypass(host):
        return urllib3.PoolManager(**settings)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if credentials := parse_url(proxy).auth:
        settings["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=credentials)
    return urllib3.ProxyManager(proxy, **settings)


def _read_body(response: Any, url: str, max_bytes: int) -> bytes:
    """Read the body of a response. Raises HttpFailed if it is too large, or does not arrive in time."""
    content, deadline = bytearray(), time.monotonic() + BODY_TIMEOUT_S
    while chunk := response.read1(_CHUNK_BYTES, decode_content=False):
        content += chunk
        if len(content) > max_bytes:
            raise HttpFailed(
                shown(url), f"the response has more than {max_bytes:,} bytes, which is the limit"
            )
        if time.monotonic() > deadline:
            raise HttpFailed(shown(url), f"the response is not complete after {BODY_TIMEOUT_S:.0f} s")
    return bytes(content)


def _failure_reason(error: BaseException) -> str:
    """Return the reason why a request failed. It contains no bytes that the server has sent."""
    import ssl

    import urllib3

    for cause in (error.__cause__, *error.args):
        if isinstance(cause, BaseException) and cause is not error:
            return _failure_reason(cause)
    if isinstance(error, (TimeoutError, urllib3.exceptions.TimeoutError)):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
