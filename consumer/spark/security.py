"""How a query gets in: ``kafka.security.protocol``, ``kafka.ssl.*`` and ``kafka.sasl.*``.

Rules that hold here:

* The names are Java's, as in Spark's own source, so that a query moves over as it is; see
  `consumer.security.properties`. What can't be honoured is refused at ``load()``, never left out.
* Executors get them by Spark's own pickles, which is why an `Access` can be pickled where
  `consumer.security.Security` can't. In a repr, a plan, a log or an error it shows its protocol at most.
* Files, such as trust stores, must be there under the same path on the driver and on every executor; PEM text
  (``kafka.ssl.truststore.certificates``) travels along. A function that gives tokens doesn't, but its name
  (``kafka.sasl.oauth.token.provider`` = ``package.module:function``): each process imports it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kproto.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KprotoError, RequestTimedOut

from ..security.option_names import SecurityConfig
from .worker_output import only_the_sentence

PREFIXES: Final = ("security.", "ssl.", "sasl.")

# Under which of Java's names people look for what our own options are called.
_JAVA: Final[Mapping[str, str]] = {
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_keyfile": "ssl.keystore.key",
    "ssl_password": "ssl.key.password",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_min_version": "ssl.enabled.protocols",
    "sasl_username": "sasl.jaas.config",
    "sasl_password": "sasl.jaas.config",
    "sasl_oauthbearer_client_id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl_oauthbearer_client_secret": "sasl.oauthbearer.client.credentials.client.secret",
}


def in_kafkas_words(error: ConfigError, names: Iterable[str]) -> ConfigError:
    """A client's error with these of its options, `sasl_username`, as Spark's users know them."""

    return ConfigError(_said(error.option), error.value, in_words(error.allowed, names))


def in_words(text: str, names: Iterable[str]) -> str:
    """A text that names a client's options, `max_request_size`, as Spark's users write them."""
    words = re.compile(rf"\b({'|'.join(sorted((n for n in names if '_' in n), key=len, reverse=True))})\b")
    return words.sub(lambda m: _said(m[1]), text)


def _said(name: str) -> str:
    return f"kafka.{_JAVA.get(name, name.replace('_', '.'))}"


# Where our own options, one by one, are no words for what Java has in another form.
_PHRASES: Final[Mapping[str, str]] = {
    "are sasl_username and sasl_password right": (
        "are the username and the password in kafka.sasl.jaas.config right"
    ),
    "set ssl_check_hostname=False": "set kafka.ssl.endpoint.identification.algorithm to the empty text",
}


@contextmanager
def said_in_kafkas_words() -> Generator[None]:
    """Around all that Spark calls: who is not let in reads the names of a query's options, in the error of
    the same class; and of no error of ours where in our code it was noticed.
    """
    try:
        yield
    except (AuthenticationFailed, ConnectionFailed, RequestTimedOut) as error:
        only_the_sentence()
        told: KprotoError
        if isinstance(error, AuthenticationFailed):
            told = AuthenticationFailed(error.address, _worded(error.detail))
        elif isinstance(error, ConnectionFailed):
            reasons = {address: _worded(why) for address, why in error.reasons.items()}
            told = ConnectionFailed(error.address, _worded(error.detail), reasons)
        else:
            reasons = {address: _worded(why) for address, why in error.reasons.items()}
            told = RequestTimedOut(error.request, error.timeout_ms, _worded(error.detail), reasons)
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        raise told from None
    except KprotoError:
        only_the_sentence()
        raise


def _worded(text: str) -> str:
    for ours, theirs in _PHRASES.items():
        text = text.replace(ours, theirs)
    return in_words(text, SecurityConfig.__annotations__)


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """Options under Java's names, in order; none means PLAINTEXT."""

    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Access:
        """Checked options, as Spark hands them over without ``kafka.``. Raises ConfigError, MissingExtra."""
        if not given or (len(given) == 1 and given.get("security.protocol", "").upper() == "PLAINTEXT"):
            return cls()  # without importing what only the others need
        from ..security.options import security_options

        found = cls(tuple(sorted(given.items())))
        try:
            security_options(found.options)
        except ConfigError as error:
            raise in_kafkas_words(error, SecurityConfig.__annotations__) from None
        return found

    @property
    def options(self) -> SecurityConfig:
        """Keyword arguments for a client, secrets in the open."""
        if not self.given:
            return {}
        from ..security.properties import from_java

        return from_java(dict(self.given))

    @property
    def protocol(self) -> str:
        """``PLAINTEXT`` where nothing is said."""
        return dict(self.given).get("security.protocol", "PLAINTEXT").upper()

    def __repr__(self) -> str:
        return f"Access({dict(self.given).get('security.protocol', 'PLAINTEXT')})"


PLAINTEXT: Final = Access()
