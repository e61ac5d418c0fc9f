"""TLS and SASL of clients. All options of both are read here, and none is logged.

    Consumer("kafka:9093", security_protocol="SASL_SSL", ssl_cafile="ca.pem",
             sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password=...)

`option_names` has the options' names, `options` reads them, and `properties` reads a client.properties file.
`tls` is TLS between a socket and an engine, and `tokens` has the tokens of OAUTHBEARER. The SASL exchange
itself is in `kproto.security`; `consumer.engine.network.login` decides when it happens. These modules are not
imported for clients without TLS and SASL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproto.lazy_imports import lazy_attributes

from .option_names import SecurityConfig

if TYPE_CHECKING:
    from .options import Security, security_options
    from .properties import client_properties
    from .tokens import Token

__all__ = ["Security", "SecurityConfig", "Token", "client_properties", "security_options"]

_SOURCES = {
    "Security": ".options",
    "Token": ".tokens",
    "client_properties": ".properties",
    "security_options": ".options",
}


if not TYPE_CHECKING:  # Without this condition a type checker would accept any attribute.
    __getattr__ = lazy_attributes(__name__, _SOURCES)
