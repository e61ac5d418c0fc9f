"""Whom a client says it is, for who looks on: nothing of what proves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .oauthbearer import TokenRefused, payload
from .scram import HASHES, named_by_scram


def named(mechanism: str, first: bytes) -> str | None:
    """The name in the first message of an exchange; None where it has none, or makes no sense.

    A token is of whom its "sub" says, although a broker may look at another claim.
    """
    read = _NAMED.get(mechanism)
    return None if read is None else read(first)


def lets_in(mechanism: str, answer: bytes) -> bool:
    """Is this answer, which is no error, a broker's last word? SCRAM's proves that it knows the user, too."""
    return answer.startswith(b"v=") if mechanism in HASHES else not answer


def _by_plain(first: bytes) -> str | None:
    parts = first.split(b"\0")
    return parts[1].decode(errors="replace") or None if len(parts) == 3 else None


def _by_oauthbearer(first: bytes) -> str | None:
    _, _, token = first.partition(b"auth=Bearer ")
    try:
        found: object = payload(token.partition(b"\x01")[0].decode(errors="replace")).get("sub")
    except TokenRefused:
        return None
    return found if isinstance(found, str) and found else None


_NAMED: Final[Mapping[str, Callable[[bytes], str | None]]] = {
    "PLAIN": _by_plain,
    "OAUTHBEARER": _by_oauthbearer,
    **dict.fromkeys(HASHES, named_by_scram),
}
