"""Kerberos logins with the SASL mechanism GSSAPI (RFC 4752) and the package gssapi (the extra `kerberos`).

Rules:

* The Kerberos library may have to request a ticket for the first message of a login. So a thread creates this
  message, while the client continues.

* The ticket is for the service `kafka`, or another configured name, on the broker's host.

* The credentials come from the ticket cache or, with `keytab`, from a file with keys. Tickets that are
  obtained with a keytab are kept in memory.

* Kafka uses no SASL security layers. TLS provides integrity and confidentiality.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, cast
from uuid import uuid4

from kproto.errors import MissingExtra
from kproto.security.exchange import SaslFailed

from ..thread_calls import call_in_thread
from .failures import NoToken

# The bit for "no security layer" in the first byte of the messages that negotiate the layer (RFC 4752). Kafka
# uses no layer.
_NO_LAYER = 1


class KerberosLogin:
    """The client side of one login. `Kerberos.login` creates it, and `begin` returns the first message."""

    mechanism = "GSSAPI"

    def __init__(self, context: Any, first: bytes) -> None:
        self._context = context
        self._first_message = first
        self._has_chosen_layer = False

    def begin(self) -> bytes:
        return self._first_message

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None if the exchange is complete.

        Raises SaslFailed if Kerberos rejects the challenge, or if the broker requires a security layer.
        """
        if self._has_chosen_layer:
            return None
        try:
            if not self._context.complete:
                return cast("bytes", self._context.step(challenge) or b"")
            offer = self._context.unwrap(challenge).message
            if len(offer) != 4 or not offer[0] & _NO_LAYER:
                raise SaslFailed(
                    "the broker requires a Kerberos security layer, which Kafka does not support"
                )
            # The second to fourth bytes hold the maximum size of wrapped messages. It is 0, because without a
            # security layer no message is wrapped after the login.
            reply = bytes([_NO_LAYER, 0, 0, 0]) + str(self._context.initiator_name).encode()
            message = self._context.wrap(reply, False).message
        except Exception as error:
            if isinstance(error, SaslFailed):
                raise
            raise SaslFailed(f"Kerberos rejected the broker's answer: {_error_text(error)}") from None
        self._has_chosen_layer = True
        return cast("bytes", message)


@dataclass(frozen=True, slots=True)
class Kerberos:
    """The Kerberos settings of one client. Raises MissingExtra if gssapi is missing."""

    service: str = "kafka"
    host: str | None = None  # The host in the name of the service; None means the broker's host.
    principal: str | None = None
    keytab: str | None = None
    # The name of the ticket cache for a keytab. It is in memory, so the user's cache is not changed.
    ticket_cache: str = field(default_factory=lambda: f"MEMORY:kproto-{uuid4()}", repr=False, compare=False)

    def __post_init__(self) -> None:
        _import_gssapi()

    def login(self, host: str) -> KerberosLogin:
        """Begin a login at the broker `host`, and return it. May wait for the KDC.

        Raises NoToken if the login cannot begin.
        """
        service = f"{self.service}@{self.host or host}"
        try:
            gssapi = _import_gssapi()
            context = gssapi.SecurityContext(
                name=gssapi.Name(service, gssapi.NameType.hostbased_service),
                creds=self._credentials(gssapi),
                usage="initiate",
                mech=gssapi.MechType.kerberos,
            )
            return KerberosLogin(context, context.step() or b"")
        except MissingExtra as error:
            raise NoToken(str(error), final=True) from None
        except Exception as error:
            final = type(error).__name__ in ("MissingCredentialsError", "ExpiredCredentialsError")
            cure = "; run kinit, or set sasl_kerberos_keytab" if final and self.keytab is None else ""
            reason = f"no Kerberos ticket for {service}: {_error_text(error)}{cure}"
            raise NoToken(reason, final=final) from None

    def _credentials(self, gssapi: Any) -> Any:
        """Return the credentials of `principal` or `keytab`, or None to log in with the ticket cache."""
        if self.principal is None and self.keytab is None:
            return None
        name = self.principal and gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        store = None
        if self.keytab is not None:
            store = {"client_keytab": self.keytab, "ccache": self.ticket_cache}
        return gssapi.Credentials(name=name or None, usage="initiate", store=store)


@dataclass(frozen=True, slots=True)
class KerberosSource:
    """Begins Kerberos logins to the broker `host`. It has the methods of a `TokenSource`."""

    kerberos: Kerberos
    host: str
    # Each connection needs a login of its own.
    shared: ClassVar[bool] = False

    def blocking(self) -> KerberosLogin:
        """Return a new login. Raises NoToken if the login cannot begin."""
        return self.kerberos.login(self.host)

    async def awaited(self) -> KerberosLogin:
        """Return a new login, which a separate thread begins.

        Raises NoToken if the login cannot begin.
        """
        try:
            return await call_in_thread(self.blocking, "kproto-token")
        except RuntimeError as error:  # The system cannot start another thread.
            raise NoToken(f"no Kerberos ticket: {error}", final=False) from None


def _error_text(error: BaseException) -> str:
    """Return the text of a Kerberos error in one line. The text contains names, but no keys."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."


def _import_gssapi() -> Any:
    try:
        return import_module("gssapi")
    except (ImportError, OSError):
        raise MissingExtra("sasl_mechanism=GSSAPI", "gssapi", "kerberos") from None
