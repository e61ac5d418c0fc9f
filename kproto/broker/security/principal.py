"""Whom a certificate names, as Kafka's default ssl.principal.mapping.rules say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .authenticator import ANONYMOUS

# RFC 2253: the short names of a subject's parts, and what is escaped in their values.
_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = r'([,+"\\<>;])|^([# ])|( )$'
_ESCAPED: Final = r"\\\g<0>"


def principal(certificate: Mapping[str, Any] | None) -> str:
    """Whom a client's certificate names: its subject as RFC 2253 writes it, as Kafka does."""
    subject: tuple[tuple[tuple[str, str], ...], ...] = (certificate or {}).get("subject", ())
    if not subject:
        return ANONYMOUS
    names = [
        f"{_SHORT.get(name, name)}={re.sub(_SPECIAL, _ESCAPED, value)}"
        for part in reversed(subject)
        for name, value in part
    ]
    return "User:" + ",".join(names)
