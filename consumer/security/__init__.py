"""The TLS and SASL options of all clients, and TLS itself. No secret is ever logged.

    Consumer("kafka:9093", security_protocol="SASL_SSL", ssl_cafile="ca.pem",
             sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password=...)

`option_names` lists the options, `options` checks them, and `properties` reads them from a client.properties
file. `tls` encrypts the bytes between a socket and an engine. `tokens` requests the tokens of OAUTHBEARER.

`kproto.security` builds and reads the messages of SASL, and `consumer.engine.network.login` determines when
they are sent. A client that uses neither TLS nor SASL does not import these modules.
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


# Hidden from type checkers, which would otherwise accept any attribute of the module.
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, _SOURCES)
