"""The principal of a client certificate, as Kafka's default mapping rules define it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .authenticator import ANONYMOUS

# From RFC 2253: the short names of a subject's attributes, and the characters to escape in attribute values.
_SHORT_NAMES: Final = {
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
_SPECIAL_CHARACTER: Final = r'([,+"\\<>;])|^([# ])|( )$'
_ESCAPED_CHARACTER: Final = r"\\\g<0>"


def principal(certificate: Mapping[str, Any] | None) -> str:
    """Return "User:" and the certificate's subject as in RFC 2253; without a subject, "User:ANONYMOUS"."""
    subject: tuple[tuple[tuple[str, str], ...], ...] = (certificate or {}).get("subject", ())
    if not subject:
        return ANONYMOUS
    attributes = [
        f"{_SHORT_NAMES.get(name, name)}={re.sub(_SPECIAL_CHARACTER, _ESCAPED_CHARACTER, value)}"
        for relative_name in reversed(subject)
        for name, value in relative_name
    ]
    return "User:" + ",".join(attributes)
