"""A token issuer for tests: keys, tokens, and the two endpoints of an OIDC issuer.

    with issuing({"orders": "its-secret"}) as issuer:
        kafka = kafka_secured("SASL_SSL", issuer=issuer)
        issuer.token("alice", seconds=5)       # for a token provider in the test
        issuer.jwks_url, issuer.token_url      # for the broker and the client: local, without TLS

Needs PyJWT, which comes with the extra `security`.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from base64 import b64decode
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, Final, Literal, get_args

from ..errors import ConfigError, MissingExtra
from ..security.jwks import signed
from ..security.oauthbearer import Check
from ..validation import FUNCTION_WITHOUT_ARGUMENTS, NAMES_TO_TEXTS, NUMBER, TEXT, checked, or_none

Algorithm = Literal["RS256", "ES256"]
AUDIENCE: Final = "kafka"


class Issuer:
    """An issuer of signed tokens.

    `name` is the claim "iss". `seconds` is the lifetime of tokens.

    `clients` maps the id of each client that may request tokens to the client's secret. `requested_forms`
    contains the form parameters of each request to the token endpoint.
    """

    @checked(name=TEXT, audience=or_none(TEXT), clients=NAMES_TO_TEXTS, seconds=NUMBER)
    def __init__(
        self,
        name: str = "https://issuer.example",
        *,
        algorithm: Algorithm = "RS256",
        audience: str | None = AUDIENCE,
        clients: Mapping[str, str] | None = None,
        seconds: float = 60.0,
    ) -> None:
        try:
            self._jwt: Any = import_module("jwt")
        except ImportError:
            raise MissingExtra("an issuer of tokens", "pyjwt", "security") from None
        if algorithm not in get_args(Algorithm):
            raise ConfigError("algorithm", algorithm, f"allowed: {', '.join(get_args(Algorithm))}")
        self.name = name
        self.algorithm = algorithm
        self.audience = audience
        self.clients = dict(clients or {})
        self.seconds = seconds
        self.requested_forms: list[dict[str, str]] = []
        self.url = ""
        self._keys: list[dict[str, Any]] = []
        self.new_key()

    def __repr__(self) -> str:
        return f"<Issuer {self.name}, keys {', '.join(key['kid'] for key in self._keys)}>"

    @property
    def jwks(self) -> dict[str, Any]:
        """Return the JSON Web Key Set with the public keys, as a broker reads it."""
        return {"keys": list(self._keys)}

    @property
    def jwks_url(self) -> str:
        """URL of the key set."""
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        """URL of the token endpoint."""
        return f"{self.url}/token"

    @checked(now_ms=FUNCTION_WITHOUT_ARGUMENTS)
    def check(self, now_ms: Callable[[], int]) -> Check:
        """Return the function with which a broker checks tokens.

        The function checks each token with the keys that the issuer has at the time of the check.
        """
        audience = [] if self.audience is None else [self.audience]
        return lambda token: signed(self.jwks, now_ms, issuer=self.name, audience=audience)(token)

    def new_key(self) -> str:
        """Sign later tokens with a new key, and return the kid of the key.

        A broker that has read the key set before this call does not know the new key until it reads the key
        set again.
        """
        if self.algorithm == "ES256":
            curves: Any = import_module("cryptography.hazmat.primitives.asymmetric.ec")
            self._private_key: Any = curves.generate_private_key(curves.SECP256R1())
        else:
            rsa: Any = import_module("cryptography.hazmat.primitives.asymmetric.rsa")
            self._private_key = rsa.generate_private_key(65537, 2048)
        public_jwk: dict[str, Any] = json.loads(
            self._jwt.get_algorithm_by_name(self.algorithm).to_jwk(self._private_key.public_key())
        )
        public_jwk.pop("key_ops", None)
        self.kid = f"key-{len(self._keys) + 1}"
        self._keys.append({**public_jwk, "kid": self.kid, "use": "sig", "alg": self.algorithm})
        return self.kid

    @checked(subject=TEXT, seconds=NUMBER)
    def token(self, subject: str, seconds: float | None = None, **claims: Any) -> str:
        """Return a token that is valid for `seconds` seconds (default: the issuer's `seconds`).

        `claims` are added to the usual claims. A usual claim of the same name is replaced. A claim that is
        None is omitted.
        """
        now = int(time.time())
        all_claims = {
            "sub": subject,
            "iss": self.name,
            "aud": self.audience,
            "iat": now,
            "exp": now + (self.seconds if seconds is None else seconds),
            **claims,
        }
        all_claims = {name: value for name, value in all_claims.items() if value is not None}
        token: str = self._jwt.PyJWS().encode(
            json.dumps(all_claims).encode(),
            self._private_key,
            self.algorithm,
            {"kid": self.kid, "typ": "JWT"},
        )
        return token

    @checked(path=TEXT, authorization=TEXT, form=NAMES_TO_TEXTS)
    def answer(self, path: str, authorization: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the response of an endpoint: the HTTP status and the JSON body."""
        if path == "/jwks":
            return 200, self.jwks
        if path != "/token":
            return 404, {"error": "not_found"}
        self.requested_forms.append(dict(form))
        client = self._authenticate_client(authorization)
        if not client:
            return 401, {"error": "invalid_client"}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        grant = {"access_token": self.token(client, scope=form.get("scope")), "token_type": "Bearer"}
        return 200, {**grant, "expires_in": self.seconds}

    def _authenticate_client(self, header: str) -> str:
        """Return the client id of an HTTP basic authentication header, or "" if the secret is wrong.

        The client id and the secret may be form-encoded (RFC 6749, 2.3.1) or plain (Java's default).
        """
        try:
            client, _, secret = b64decode(header.removeprefix("Basic ")).decode().partition(":")
        except ValueError:
            return ""
        plain = client, secret
        form_decoded = urllib.parse.unquote_plus(client), urllib.parse.unquote_plus(secret)
        for client_id, client_secret in (plain, form_decoded):
            if client_id and self.clients.get(client_id) == client_secret:
                return client_id
        return ""


@contextmanager
def issuing(clients: Mapping[str, str] | None = None, **settings: Any) -> Generator[Issuer]:
    """Run an `Issuer` whose endpoints are served on 127.0.0.1 until the end of the block."""
    issuer = Issuer(clients=clients, **settings)

    class Endpoints(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self._respond(dict(urllib.parse.parse_qsl(body)))

        def _respond(self, form: dict[str, str]) -> None:
            status, document = issuer.answer(self.path, self.headers.get("Authorization", ""), form)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass  # Requests are not logged.

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoints) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="kproto issuer", daemon=True
        )
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
