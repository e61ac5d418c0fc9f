"""Signed assertions, which a client sends instead of a secret to request tokens (RFC 7523).

The client signs a JWT, which proves its identity to the token endpoint. It sends the JWT with one of two
grants: the JWT bearer grant (KIP-1139), or client credentials with a client assertion (KIP-1258).

Rules:

* The header and the claims are those of Java's JwtBearerJwtRetriever. Three sources set their fields in this
  order: the options set `aud`, `iss` and `sub`; the template file may set any field; the client sets `typ`,
  `alg`, `iat`, `exp`, `nbf` and, if configured, `jti`. A later source replaces a field of an earlier source.

* The files are read when a client is created, so that an invalid file raises ConfigError. They are read again
  for each token, so a key may be replaced without a restart. If a file has become invalid, no new token is
  requested.

* The JWT is signed by PyJWT (the extra `security`).

* No error contains the key, its passphrase or the assertion.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kproto.errors import ConfigError, MissingExtra
from kproto.security.oauthbearer import is_token

from .failures import NoToken
from .secret import HIDDEN, Secret
from .tokens import Token, requested_token

if TYPE_CHECKING:
    import ssl

PREFIX: Final = "sasl_oauthbearer_assertion_"
ALGORITHMS: Final = ("RS256", "ES256")
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_CREDENTIALS: Final = "client_credentials"
GRANT_TYPES: Final = (CLIENT_CREDENTIALS, JWT_BEARER)
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class _InvalidFile(ValueError):
    """Raised if the file that an option names cannot be used. The error message contains no secret."""

    def __init__(self, option: str, path: str, reason: str) -> None:
        super().__init__(option, path, reason)
        self.option, self.path, self.reason = option, path, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """Creates assertions from options: a file with an assertion, or claims and the key that signs them."""

    file: str | None = None
    key_file: str | None = None
    passphrase: Secret | None = None
    algorithm: str = "RS256"
    claims: Mapping[str, str] = field(default_factory=dict[str, str])
    template_file: str | None = None
    exp_seconds: int = 300
    nbf_seconds: int = 60
    jti: bool = False

    def create(self) -> str:
        """Return the assertion in `file`, or if `file` is None, sign one for the next `exp_seconds`.

        Raises MissingExtra and `_InvalidFile`.
        """
        if self.file is not None:
            jwt_text = _read_file(f"{PREFIX}file", self.file).decode("latin-1").strip()
            if jwt_text.count(".") != 2 or not is_token(jwt_text):
                raise _InvalidFile(f"{PREFIX}file", self.file, "it contains no JWT")
            return jwt_text
        option, path = f"{PREFIX}private_key_file", self.key_file or ""
        pem, now = _read_file(option, path), int(time.time())
        header, payload = self._read_template()
        claims = {**self.claims, **payload, "iat": now, "exp": now + self.exp_seconds}
        claims["nbf"] = now - self.nbf_seconds
        if self.jti:
            claims["jti"] = str(uuid.uuid4())
        try:
            jwt: Any = import_module("jwt")
            serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
        except ImportError:
            raise MissingExtra(option, "pyjwt", "security") from None
        password = None if self.passphrase is None else self.passphrase.reveal().encode()
        try:
            private_key = serialization.load_pem_private_key(pem, password)
            # PyJWS is used because PyJWT rejects some types of claims. A template may contain any claims.
            signed = jwt.PyJWS().encode(json.dumps(claims).encode(), private_key, self.algorithm, header)
        # cryptography and PyJWT raise many classes of errors, whose texts may contain parts of the key.
        except Exception as error:
            why = "with this passphrase " if password is not None else ""
            reason = f"it has no key {why}that signs with {self.algorithm} ({type(error).__name__})"
            raise _InvalidFile(option, path, reason) from None
        return cast("str", signed)

    def _read_template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header of a new assertion, and the payload of the template file.

        Raises `_InvalidFile`. Without a template file, the payload is empty.
        """
        if self.template_file is None:
            return self._jwt_header({}), {}
        option = f"{PREFIX}template_file"
        try:
            template: object = json.loads(_read_file(option, self.template_file))
            header, payload = (cast("Any", template).get(part, {}) for part in ("header", "payload"))
            return self._jwt_header(dict(header)), dict(payload)
        except (AttributeError, RecursionError, TypeError, ValueError) as error:
            if isinstance(error, _InvalidFile):
                raise
            reason = 'it is not JSON of the form {"header": {...}, "payload": {...}}'
            raise _InvalidFile(option, self.template_file, reason) from None

    def _jwt_header(self, template_header: dict[str, Any]) -> dict[str, Any]:
        # Without "alg" here, PyJWT would use the template's algorithm, not the option's.
        return {**template_header, "typ": "JWT", "alg": self.algorithm}


@dataclass(frozen=True, slots=True)
class AssertionEndpoint:
    """A token provider that requests a token from an OIDC endpoint with a signed assertion.

    `grant_type` is one of GRANT_TYPES. `client_id` is allowed only with the client credentials grant.
    """

    url: str
    assertion: Assertion
    scope: str | None
    context: ssl.SSLContext | None = None
    grant_type: str = JWT_BEARER
    client_id: str | None = None

    def __call__(self) -> Token:
        try:
            assertion = self.assertion.create()
        except _InvalidFile as error:
            raise NoToken(f"{error.option}={error.path!r}: {error.reason}", final=False) from None
        except MissingExtra as error:
            raise NoToken(str(error), final=True) from None
        form = {"grant_type": self.grant_type}
        if self.grant_type == JWT_BEARER:
            form["assertion"] = assertion
        else:
            form |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        if self.client_id:
            form["client_id"] = self.client_id
        if self.scope:
            form["scope"] = self.scope
        cure = "does the endpoint trust the key, and are the claims and the scope right?"
        return requested_token(self.url, headers={}, form=form, context=self.context, cure=cure)


def assertion_of(values: Mapping[str, Any]) -> Assertion:
    """Return the `Assertion` that the options `values` describe.

    Raises ConfigError if an option is missing or invalid, or if a file cannot be used: to check the files,
    the function creates one assertion. Raises MissingExtra if the assertion must be signed and pyjwt is
    missing.
    """
    options = {name.removeprefix(PREFIX): value for name, value in values.items() if name.startswith(PREFIX)}
    if "file" in options and len(options) > 1:
        unused = next(name for name in options if name != "file")
        allowed = f"{PREFIX}file is also set, and contains the whole assertion"
        raise ConfigError(f"{PREFIX}{unused}", HIDDEN, allowed)
    if "file" not in options and "private_key_file" not in options:
        allowed = f"the path of a key in PEM, or {PREFIX}file with an assertion"
        raise ConfigError(f"{PREFIX}private_key_file", None, allowed)
    for name in ("file", "private_key_file", "template_file"):
        if "\n" in options.get(name, ""):
            raise ConfigError(f"{PREFIX}{name}", HIDDEN, "the path of a file, not its content")
    passphrase = options.get("private_key_passphrase")
    assertion = Assertion(
        file=options.get("file"),
        key_file=options.get("private_key_file"),
        passphrase=None if passphrase is None else Secret(passphrase),
        algorithm=options.get("algorithm", "RS256"),
        claims={
            name: options[f"claim_{name}"] for name in ("aud", "iss", "sub") if f"claim_{name}" in options
        },
        template_file=options.get("template_file"),
        exp_seconds=options.get("claim_exp_seconds", 300),
        nbf_seconds=options.get("claim_nbf_seconds", 60),
        jti=options.get("claim_jti_include", False),
    )
    try:
        assertion.create()
    except _InvalidFile as error:
        allowed = f"the path of a file that can be used: {error.reason}"
        raise ConfigError(error.option, error.path, allowed) from None
    return assertion


def _read_file(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "the path is not valid").lower()
        raise _InvalidFile(option, path, reason) from None
