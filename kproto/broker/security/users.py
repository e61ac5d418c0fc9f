"""Whom a broker knows: passwords for PLAIN, credentials for SCRAM, and how a token is looked at.

Rules that hold here:

* A user has one password: PLAIN looks at it, and SCRAM's credentials are made from it when it is set, not
  when somebody asks: that takes milliseconds, which a stranger's name would not. What
  AlterUserScramCredentials changes is SCRAM's alone, as in Kafka.
* Salts, and what strangers are asked about, come from one secret of the broker: nothing here is random, and a
  stranger's name gets the same answer each time, as a user's does.
* No repr has a password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from ...security.oauthbearer import Check
from ...security.scram import HASHES, LEAST_ITERATIONS, Credential, credential, salted

# ScramMechanism's numbers in AlterUserScramCredentials, and the iterations that Kafka allows.
NUMBERS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MOST_ITERATIONS: Final = 16_384


class Users:
    """`passwords` by name; `secret` is the broker's own, and says nothing to anybody else."""

    def __init__(
        self, passwords: Mapping[str, str] | None = None, secret: bytes = b"", tokens: Check | None = None
    ) -> None:
        self.tokens = tokens
        self._secret = secret
        self._passwords: dict[str, str] = {}
        self._scram: dict[str, dict[str, Credential]] = {name: {} for name in HASHES}
        for name, password in (passwords or {}).items():
            self.set(name, password)

    def __repr__(self) -> str:
        return f"Users({', '.join(sorted(self._passwords))})"

    def set(self, name: str, password: str) -> None:
        """Lets a user in by this password from now on, and by no other one."""
        self._passwords[name] = password
        for mechanism, known in self._scram.items():
            known[name] = self._made(mechanism, name, password)

    def remove(self, name: str) -> None:
        """Lets a user in no more."""
        self._passwords.pop(name, None)
        for known in self._scram.values():
            known.pop(name, None)

    def password(self, name: str) -> str | None:
        return self._passwords.get(name)

    def credential(self, mechanism: str, name: str) -> Credential | None:
        return self._scram[mechanism].get(name)

    def decoy(self, mechanism: str, name: str) -> Credential:
        """What a stranger is asked about: nobody knows its password."""
        salt = self._salt(mechanism, name)
        key = hmac.digest(self._secret, b"decoy" + salt, "sha512")[
            : hashlib.new(HASHES[mechanism]).digest_size
        ]
        return Credential(salt, LEAST_ITERATIONS, key, key)

    def alter(self, mechanism: str, name: str, made: Credential | None) -> None:
        """Sets SCRAM's credential, or takes it away."""
        if made is None:
            self._scram[mechanism].pop(name, None)
        else:
            self._scram[mechanism][name] = made

    def known(self) -> list[str]:
        """All who have a credential for SCRAM."""
        return sorted({name for known in self._scram.values() for name in known})

    def _salt(self, mechanism: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{mechanism}\0{name}".encode(), "sha256")[:20]

    def _made(self, mechanism: str, name: str, password: str) -> Credential:
        salt = self._salt(mechanism, name)
        return credential(
            mechanism, salted(mechanism, password, salt, LEAST_ITERATIONS), salt, LEAST_ITERATIONS
        )
