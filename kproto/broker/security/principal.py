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
_SPECIAL: Final = r'([,+"\\<>;])|^([# ])|( )$'
_ESCAPED: Final = r"\\\g<0>"


def principal(certificate: Mapping[str, Any] | None) -> str:
    """Return the principal of a certificate: "User:" and the subject in the format of RFC 2253."""
    subject: tuple[tuple[tuple[str, str], ...], ...] = (certificate or {}).get("subject", ())
    if not subject:
        return ANONYMOUS
    attributes = [
        f"{_SHORT_NAMES.get(name, name)}={re.sub(_SPECIAL, _ESCAPED, value)}"
        for part in reversed(subject)
        for name, value in part
    ]
    return "User:" + ",".join(attributes)
