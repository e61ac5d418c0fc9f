"""The users of a broker: passwords, SCRAM credentials, and the check of tokens.

Rules:

* A user has one password. PLAIN compares the password. SCRAM uses credentials that are derived from the
  password when it is set.

* Credentials are not derived during the login. Deriving takes milliseconds, and this delay would reveal to a
  client that the user exists.

* AlterUserScramCredentials changes only the SCRAM credentials, as in Kafka.

* An unknown name gets a decoy: a credential that no password matches.

* Salts and decoys are derived from a secret of the broker. So an unknown name has the same salt at every
  login, as an existing user has.

* No repr contains a password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from ...security.oauthbearer import Check
from ...security.scram import HASHES, LEAST_ITERATIONS, Credential, credential, salted

# The mechanism numbers in AlterUserScramCredentials (ScramMechanism).
NUMBERS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
# ScramMechanism's limit.
MOST_ITERATIONS: Final = 16_384


class Users:
    """The users of one broker. `passwords` maps user names to passwords.

    `secret` is the key from which the salts, and the decoys for unknown names, are derived.
    """

    def __init__(
        self, passwords: Mapping[str, str] | None = None, secret: bytes = b"", tokens: Check | None = None
    ) -> None:
        # The check of OAUTHBEARER tokens; None if the mechanism is not enabled.
        self.tokens = tokens
        self._secret = secret
        self._passwords: dict[str, str] = {}
        self._credentials: dict[str, dict[str, Credential]] = {name: {} for name in HASHES}
        for name, password in (passwords or {}).items():
            self.set(name, password)

    def __repr__(self) -> str:
        return f"Users({', '.join(sorted(self._passwords))})"

    def set(self, name: str, password: str) -> None:
        """Add a user, or replace the user's password and SCRAM credentials."""
        self._passwords[name] = password
        for mechanism, credentials in self._credentials.items():
            credentials[name] = self._derive_credential(mechanism, name, password)

    def remove(self, name: str) -> None:
        """Remove a user; connections of the user that are already authenticated stay open."""
        self._passwords.pop(name, None)
        for credentials in self._credentials.values():
            credentials.pop(name, None)

    def password(self, name: str) -> str | None:
        """Return the password of a user, or None if the user is unknown."""
        return self._passwords.get(name)

    def credential(self, mechanism: str, name: str) -> Credential | None:
        """Return the SCRAM credential of a user, or None if the credential does not exist."""
        return self._credentials[mechanism].get(name)

    def decoy(self, mechanism: str, name: str) -> Credential:
        """Return the decoy for an unknown name: a credential that no password matches."""
        salt = self._salt(mechanism, name)
        key_size = hashlib.new(HASHES[mechanism]).digest_size
        key = hmac.digest(self._secret, b"decoy" + salt, "sha512")[:key_size]
        return Credential(salt, LEAST_ITERATIONS, key, key)

    def alter(self, mechanism: str, name: str, new: Credential | None) -> None:
        """Replace the SCRAM credential of a user; None deletes it."""
        if new is None:
            self._credentials[mechanism].pop(name, None)
        else:
            self._credentials[mechanism][name] = new

    def known(self) -> list[str]:
        """Return all names with a SCRAM credential, sorted."""
        return sorted({name for credentials in self._credentials.values() for name in credentials})

    def _salt(self, mechanism: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{mechanism}\0{name}".encode(), "sha256")[:20]

    def _derive_credential(self, mechanism: str, name: str, password: str) -> Credential:
        salt = self._salt(mechanism, name)
        salted_password = salted(mechanism, password, salt, LEAST_ITERATIONS)
        return credential(mechanism, salted_password, salt, LEAST_ITERATIONS)
