"""Read the user name in a client's authentication messages, for tools that inspect traffic.

The functions read neither passwords nor proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .oauthbearer import TokenRejected, payload
from .scram import HASHES, scram_name


def claimed_name(mechanism: str, first: bytes) -> str | None:
    """Return the name in the first message of an exchange, or None if the message has no name.

    In a token, the name is the "sub" claim, even if the broker is configured to use another claim.
    """
    read = _NAMED.get(mechanism)
    return None if read is None else read(first)


def is_final_success(mechanism: str, answer: bytes) -> bool:
    """Return whether a broker's response is the last one of a successful authentication.

    The caller must have checked that the response reports no error. In SCRAM, the last response contains the
    broker's proof that it knows the user's credential. In any other mechanism, the last response is empty.
    """
    return answer.startswith(b"v=") if mechanism in HASHES else not answer


def _by_plain(first: bytes) -> str | None:
    parts = first.split(b"\0")
    return parts[1].decode(errors="replace") or None if len(parts) == 3 else None


def _by_oauthbearer(first: bytes) -> str | None:
    _, _, token = first.partition(b"auth=Bearer ")
    try:
        subject: object = payload(token.partition(b"\x01")[0].decode(errors="replace")).get("sub")
    except TokenRejected:
        return None
    return subject if isinstance(subject, str) and subject else None


_NAMED: Final[Mapping[str, Callable[[bytes], str | None]]] = {
    "PLAIN": _by_plain,
    "OAUTHBEARER": _by_oauthbearer,
    **dict.fromkeys(HASHES, scram_name),
}
