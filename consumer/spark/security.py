"""Checks the security options of a query: ``kafka.security.protocol``, ``kafka.ssl.*`` and ``kafka.sasl.*``.

Rules:

* The options have Java's names, as in Spark's own source, so that a query can be migrated unchanged (see
  `consumer.security.properties`). An unsupported option is rejected at ``load()``, and never ignored.

* Spark pickles the options for the executors. So `SecurityProperties` can be pickled, unlike
  `consumer.security.Security`. Its repr, and every plan, log and error, shows at most the protocol.

* Files, such as trust stores, must exist under the same path on the driver and on every executor. PEM text
  (``kafka.ssl.truststore.certificates``) is sent with the options.

* A token provider is set by its name (``kafka.sasl.oauth.token.provider`` = ``package.module:function``), and
  each process imports it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kproto.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KprotoError, RequestTimedOut

from ..security.option_names import SecurityConfig
from .worker_output import hide_traceback

PREFIXES: Final = ("security.", "ssl.", "sasl.")

# The Java option, without ``kafka.``, that corresponds to each option of the client.
_JAVA_OPTIONS: Final[Mapping[str, str]] = {
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


def config_error_with_kafka_names(error: ConfigError, names: Iterable[str]) -> ConfigError:
    """Return an error of the client in which Kafka's option names replace the client's.

    `names` are the client's options that the text may contain, such as `sasl_username`.
    """

    return ConfigError(_kafka_name(error.option), error.value, with_kafka_names(error.allowed, names))


def with_kafka_names(text: str, names: Iterable[str]) -> str:
    """Replace the client's option names in `text`, such as `max_request_size`, with Kafka's names."""
    # Names without an underscore are not replaced, because they may be ordinary words of the text. Longer
    # names are matched first, because one name may be a part of another one.
    replaced = sorted((name for name in names if "_" in name), key=len, reverse=True)
    option_names = re.compile(rf"\b({'|'.join(replaced)})\b")
    return option_names.sub(lambda match: _kafka_name(match[1]), text)


def _kafka_name(name: str) -> str:
    """Return the query's option for the client's option `name`: ``kafka.`` and the Java option."""
    return f"kafka.{_JAVA_OPTIONS.get(name, name.replace('_', '.'))}"


# Phrase in the client's error messages that names a Python option -> the phrase with the corresponding Java
# option.
_PHRASES: Final[Mapping[str, str]] = {
    "are sasl_username and sasl_password right": (
        "are the username and the password in kafka.sasl.jaas.config right"
    ),
    "set ssl_check_hostname=False": "set kafka.ssl.endpoint.identification.algorithm to an empty string",
}


@contextmanager
def kafka_option_names_in_errors() -> Generator[None]:
    """Use Kafka's option names in errors, and hide kproto's stack frames in tracebacks.

    Authentication, connection and timeout errors are raised again as the same class, with Kafka's option
    names. Every function that Spark calls uses this context manager.
    """
    try:
        yield
    except (AuthenticationFailed, ConnectionFailed, RequestTimedOut) as error:
        hide_traceback()
        reworded: KprotoError
        if isinstance(error, AuthenticationFailed):
            reworded = AuthenticationFailed(error.address, _reword_text(error.detail))
        elif isinstance(error, ConnectionFailed):
            reasons = {address: _reword_text(reason) for address, reason in error.reasons.items()}
            reworded = ConnectionFailed(error.address, _reword_text(error.detail), reasons)
        else:
            reasons = {address: _reword_text(reason) for address, reason in error.reasons.items()}
            reworded = RequestTimedOut(error.request, error.timeout_ms, _reword_text(error.detail), reasons)
        for note in getattr(error, "__notes__", ()):
            reworded.add_note(note)
        raise reworded from None
    except KprotoError:
        hide_traceback()
        raise


def _reword_text(text: str) -> str:
    """Replace the Python client's phrases and security options in `text` with Java's."""
    for python_phrase, java_phrase in _PHRASES.items():
        text = text.replace(python_phrase, java_phrase)
    return with_kafka_names(text, SecurityConfig.__annotations__)


@dataclass(frozen=True, slots=True, repr=False)
class SecurityProperties:
    """The security options under Java's names, sorted. Without options, the protocol is PLAINTEXT."""

    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SecurityProperties:
        """Check the security options that Spark passes.

        The keys of `options` are the options' names without the prefix ``kafka.``.

        Raises ConfigError if an option is not valid, and MissingExtra if a required package is missing.
        """
        if not options or (len(options) == 1 and options.get("security.protocol", "").upper() == "PLAINTEXT"):
            return cls()  # PLAINTEXT does not need the import below.
        from ..security.options import security_options

        properties = cls(tuple(sorted(options.items())))
        try:
            security_options(properties.options)
        except ConfigError as error:
            raise config_error_with_kafka_names(error, SecurityConfig.__annotations__) from None
        return properties

    @property
    def options(self) -> SecurityConfig:
        """Return keyword arguments for a client. They contain the secrets in clear text."""
        if not self.properties:
            return {}
        from ..security.properties import from_java

        return from_java(dict(self.properties))

    @property
    def protocol(self) -> str:
        """The security protocol, by default ``PLAINTEXT``."""
        return dict(self.properties).get("security.protocol", "PLAINTEXT").upper()

    def __repr__(self) -> str:
        return f"SecurityProperties({self.protocol})"


PLAINTEXT: Final = SecurityProperties()
