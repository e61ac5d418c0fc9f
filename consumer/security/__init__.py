"""How a client gets in: TLS, and SASL over it. All of its options are read here, and none is logged.

    Consumer("kafka:9093", security_protocol="SASL_SSL", ssl_cafile="ca.pem",
             sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password=...)

`names` has the options' names, `options` reads them, `properties` reads a client.properties, `tls` is TLS
between a socket and an engine, `tokens` are OAUTHBEARER's. The exchange itself is `kproto.security`, and when
it happens says `consumer.engine.network.login`. Nothing of it is imported for clients that use none of it.
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


if not TYPE_CHECKING:  # a type checker would accept any attribute
    __getattr__ = lazy_attributes(__name__, _SOURCES)
