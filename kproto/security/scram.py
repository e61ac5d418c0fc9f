"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding, as in Kafka.

* The password is never sent: client and server prove to each other that they know it. A client fails if the
  signature in the server's last message is invalid.

* A client accepts iteration counts from 4096, the minimum of RFC 7677, up to `MOST_ITERATIONS`. A server that
  asks for more could make the client hash for minutes. Kafka's brokers store credentials with at most 16384.

* In names, a comma is written as =2C and an equals sign as =3D.

* Like Kafka, this module does not apply SASLprep to names and passwords.
* Proofs are compared in constant time.

* A client cannot distinguish an unknown user from a wrong proof. Both are rejected in response to the
  client's last message, with the same text and after the same computation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from .exchange import OTHER_AUTHZID, Accepted, Challenge, Rejected, SaslFailed

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 262_144

_HEADER: Final = "n,,"
# The SCRAM extension of a client that logs in with a delegation token (ScramLoginModule.TOKEN_AUTH_CONFIG).
_BY_TOKEN: Final = ",tokenauth=true"
_REJECTION: Final = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"
_BASE64: Final = "[A-Za-z0-9+/]*={0,2}"
_NONCE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_FIRST: Final = re.compile(
    rf"(?:m=[^,]*,)?r=({_NONCE}),s=({_BASE64}),i=([0-9]{{1,20}})(?:,.*)?",
    re.DOTALL,
)
_FINAL: Final = re.compile(rf"(?:e=([^,]*)|v=({_BASE64}))(?:,.*)?", re.DOTALL)
# User names must be ASCII, as in Kafka's ScramMessages, although RFC 5802 allows all of UTF-8.
_SASLNAME: Final = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,"
    rf"(?P<bare>n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_NONCE})(?P<rest>{_EXTENSIONS}))",
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})",
)


@dataclass(frozen=True, slots=True)
class Credential:
    """The data that a broker stores instead of a password.

    A credential alone is not enough to log in as the user.
    """

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A delegation token's owner (a user name), its credential, and its expiration in ms since 1970."""

    owner: str
    credential: Credential
    expires_at: int


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password (PBKDF2). The `iterations` take most of an authentication's time."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """Derive a broker's stored data from a salted password."""
    name = HASHES[mechanism]
    stored_key = hashlib.new(name, _hmac(name, salted_password, b"Client Key")).digest()
    return Credential(salt, iterations, stored_key, _hmac(name, salted_password, b"Server Key"))


class ScramClient:
    """The client side of SCRAM. `nonce` is random and printable, with at least 128 bits and without commas.

    `salt_password(salt, iterations)` replaces the function `salted`, so that a caller can cache the salted
    password.

    With `by_token`, the client authenticates with a delegation token (KIP-48), and sends the extension
    tokenauth=true. `username` is the token's id, and `password` its HMAC in base64.
    """

    __slots__ = ("_bare", "_hash", "_nonce", "_salt", "_server_key", "_state", "_transcript", "mechanism")

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: str,
        *,
        salt_password: Callable[[bytes, int], bytes] | None = None,
        by_token: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{_BY_TOKEN if by_token else ''}"
        self._salt: Callable[[bytes, int], bytes] = salt_password or partial(salted, mechanism, password)
        self._server_key = b""
        self._transcript = b""
        self._state = self._first

    def begin(self) -> bytes:
        return (_HEADER + self._bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return self._state(challenge)

    def _first(self, challenge: bytes) -> bytes | None:
        match = _FIRST.fullmatch(_text(challenge))
        if match is None:
            raise SaslFailed("the broker's first SCRAM message is malformed")
        nonce, iterations = match[1], int(match[3])
        if challenge.startswith(b"m="):
            raise SaslFailed("the broker requires an unknown SCRAM extension")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslFailed("the broker's SCRAM nonce does not start with the client's")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            allowed = f"allowed are {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            raise SaslFailed(f"the broker asks for {iterations} SCRAM iterations; {allowed}")
        salt = _unbase64(match[2])
        if not salt:
            raise SaslFailed("the broker's SCRAM salt is empty or not base64")
        password = self._salt(salt, iterations)
        bare = f"c={_base64(_HEADER.encode())},r={nonce}"
        self._transcript = b",".join((self._bare.encode(), challenge, bare.encode()))
        client_key = _hmac(self._hash, password, b"Client Key")
        signature = _hmac(self._hash, hashlib.new(self._hash, client_key).digest(), self._transcript)
        self._server_key = _hmac(self._hash, password, b"Server Key")
        self._state = self._final
        return f"{bare},p={_base64(_xor(client_key, signature))}".encode()

    def _final(self, challenge: bytes) -> bytes | None:
        match = _FINAL.fullmatch(_text(challenge))
        if match is None:
            raise SaslFailed("the broker's last SCRAM message is malformed")
        if match[1] is not None:
            raise SaslFailed(f"the broker says {match[1]!r}")
        expected = _hmac(self._hash, self._server_key, self._transcript)
        if not hmac.compare_digest(expected, _unbase64(match[2]) or b""):
            raise SaslFailed(
                "the broker can't prove that it knows the password: is this the broker that you expect?"
            )
        self._state = self._after_end
        return None

    def _after_end(self, challenge: bytes) -> bytes | None:
        raise SaslFailed("the broker sent a message after the end of the SCRAM exchange")


class ScramServer:
    """The broker side of SCRAM. `look_up` returns a user's credential, or None if the user does not exist.

    `nonce` is the broker's part of the nonce. Like the client's, it is random and printable, with at least
    128 bits and without commas.

    `decoy` returns a credential for an unknown user, so that responses do not reveal which users exist. It
    must return the same credential each time for the same name.

    `renews` is true for a re-authentication (KIP-368).

    `look_up_token` returns a delegation token by its id, for clients that send the extension tokenauth=true
    (KIP-48). It returns None for an unknown id.
    """

    __slots__ = (
        "_decoy",
        "_first",
        "_hash",
        "_known",
        "_look_up",
        "_look_up_token",
        "_message",
        "_name",
        "_nonce",
        "_real",
        "_state",
        "_token",
        "mechanism",
    )

    def __init__(
        self,
        mechanism: str,
        look_up: Callable[[str], Credential | None],
        nonce: str,
        decoy: Callable[[str], Credential],
        *,
        renews: bool = False,
        look_up_token: Callable[[str], TokenCredential | None] = lambda token_id: None,
    ) -> None:
        self.mechanism = mechanism
        self._message = _REJECTION.format("re-authentication" if renews else "authentication", mechanism)
        self._hash = HASHES[mechanism]
        self._look_up = look_up
        self._look_up_token = look_up_token
        self._token: TokenCredential | None = None
        self._nonce = nonce
        self._decoy = decoy
        self._known: Credential | None = None
        self._real = False
        self._name = ""
        self._first = b""
        self._state: Callable[[bytes], Challenge | Accepted | Rejected] = self._begin

    def evaluate_response(self, response: bytes) -> Challenge | Accepted | Rejected:
        return self._state(response)

    def _reject(self, reason: str, message: str = "") -> Rejected:
        self._state = lambda response: self._reject("the exchange has ended")
        return Rejected(message or self._message, reason)

    def _begin(self, response: bytes) -> Challenge | Accepted | Rejected:
        match = _CLIENT_FIRST.fullmatch(_text(response))
        if match is None:
            return self._reject("the first SCRAM message is malformed")
        name = _name(match["name"])
        if match["authzid"] and match["authzid"] != name:
            return self._reject(f"{name!r} requested another authorization id", OTHER_AUTHZID)
        self._name = name
        by_token = _BY_TOKEN in match["rest"]
        # The user's credential and the decoy are always both looked up, so that the response time does not
        # reveal which users exist.
        self._token = self._look_up_token(name) if by_token else None
        if by_token and self._token is None:  # The ids of tokens are random, so that none can be guessed.
            return self._reject(f"the delegation token {name!r} does not exist, or has expired")
        looked_up, decoy = self._look_up(name), self._decoy(name)
        if self._token is not None:
            looked_up = self._token.credential
        self._real = looked_up is not None
        known = self._known = looked_up or decoy
        self._nonce = match["nonce"] + self._nonce
        challenge = f"r={self._nonce},s={_base64(known.salt)},i={known.iterations}".encode()
        self._first = match["bare"].encode() + b"," + challenge
        self._state = self._end
        return Challenge(challenge)

    def _end(self, response: bytes) -> Challenge | Accepted | Rejected:
        match = _CLIENT_FINAL.fullmatch(_text(response))
        if match is None:
            return self._reject("the last SCRAM message is malformed")
        known = self._known
        assert known is not None
        transcript = self._first + b"," + match["bare"].encode()
        signature = _hmac(self._hash, known.stored_key, transcript)
        proof = _unbase64(match["proof"]) or b""
        key = _xor(proof, signature) if len(proof) == len(signature) else bytes(len(signature))
        right = hmac.compare_digest(hashlib.new(self._hash, key).digest(), known.stored_key)
        if match["nonce"] != self._nonce:
            return self._reject("the SCRAM nonce is not the one of this exchange")
        if (_unbase64(match["binding"]) or b"")[:2] != b"n,":
            return self._reject("channel binding was requested, but is not supported")
        if not self._real:
            return self._reject(f"user {self._name!r} has no {self.mechanism} credential")
        if not right:
            return self._reject(f"a wrong password for {self._name!r}")
        self._state = lambda response: self._reject("the exchange has ended")
        answer = _base64(_hmac(self._hash, known.server_key, transcript))
        data = f"v={answer}".encode()
        if self._token is None:
            return Accepted(self._name, data)
        return Accepted(self._token.owner, data, self._token.expires_at, by_token=True)


def _hmac(name: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(data: bytes) -> str:
    """Decode UTF-8. Return "", which is not a valid message, for bytes that are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _name(text: str) -> str:
    """Replace the escapes =2C and =3D in a name."""
    return text.replace("=2C", ",").replace("=3D", "=")


def scram_name(first: bytes) -> str | None:
    """Return the name in a client's first message, or None if the message is malformed."""
    match = _CLIENT_FIRST.fullmatch(_text(first))
    return None if match is None else _name(match["name"])
