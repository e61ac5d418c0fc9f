"""Signed OAUTHBEARER tokens: a real Kafka and the embedded broker accept and reject the same ones.

The real Kafka validates the tokens with its OAuthBearerValidatorCallbackHandler.

A real Kafka and the embedded broker have the same settings and keys. Each test sends the same raw requests
with the same tokens to both, and compares the responses.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from consumer import Admin, AsyncAdmin
from kproto.broker.server import running
from kproto.errors import AuthenticationFailed
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.oauthbearer import OAuthBearerClient
from kproto.testing import brokers
from kproto.testing.issuer import Issuer, issuing
from tests.broker.stage import connected
from tests.conformance import judges

jwt: Any = pytest.importorskip("jwt")
rsa: Any = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
CLIENT, SECRET = "orders", "s3cr3t of: orders"
TOLD = '{"status":"invalid_token"}'
LENIENT = {"sasl.oauthbearer.expected.audience": "others, kafka"}
# The settings of each listener, in addition to the URL of the JWKS endpoint.
LISTENERS: dict[str, dict[str, str]] = {
    "STRICT": {**LENIENT, "sasl.oauthbearer.expected.issuer": "https://issuer.example"},
    "LENIENT": LENIENT,
    "OPEN": {},
    "NAMED": {
        **LENIENT,
        "sasl.oauthbearer.sub.claim.name": "client_id",
        "sasl.oauthbearer.scope.claim.name": "may",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    },
}


Issuers = tuple[Issuer, Issuer, Issuer, Any, Any]


@dataclass(frozen=True)
class Known:
    """The three token issuers, and a broker's listeners by name."""

    rsa: Issuer
    ec: Issuer
    stranger: Issuer
    first: Any
    short: Any
    places: dict[str, str]


@pytest.fixture(scope="module")
def issuers() -> Iterator[Issuers]:
    """Publish one key set: the keys of two of three issuers, and keys that are unsuitable.

    The yielded `Issuers` also contains the first issuer's first key, and a key that is too short.
    """
    with issuing({CLIENT: SECRET}) as issuer:
        ec = Issuer(algorithm="ES256")
        first = issuer._private_key
        issuer.new_key()
        ec._keys[0]["kid"] = ec.kid = "elliptic"
        short = rsa.generate_private_key(65537, 1024)
        issuer._keys += [
            *ec._keys,
            {"kty": "oct", "kid": "secret", "k": urlsafe_b64encode(b"k" * 32).rstrip(b"=").decode()},
            {**issuer._keys[0], "kid": "to-encrypt", "use": "enc"},
            {**issuer._keys[0], "kid": "ps-only", "alg": "PS256"},
            {**jwt.get_algorithm_by_name("RS256").to_jwk(short.public_key(), as_dict=True), "kid": "short"},
        ]
        stranger = Issuer()
        stranger.kid = "stranger"
        yield issuer, ec, stranger, first, short


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.java])],
)
def known(request: pytest.FixtureRequest, issuers: Issuers) -> Iterator[Known]:
    url = issuers[0].jwks_url
    common = {"sasl.oauthbearer.jwks.endpoint.url": url, "connections.max.reauth.ms": "3600000"}
    with ExitStack() as stack:
        if request.param == "embedded":
            places = {
                name: stack.enter_context(
                    running(settings={**common, **settings}, listen=["SASL_PLAINTEXT://127.0.0.1:0"])
                ).bootstrap
                for name, settings in LISTENERS.items()
            }
        else:
            places = stack.enter_context(real(common))
        yield Known(*issuers, places)


@contextmanager
def real(common: dict[str, str]) -> Iterator[dict[str, str]]:
    package = "org.apache.kafka.common.security.oauthbearer"
    ports = {name: judges.free_port() for name in LISTENERS}
    mapped = "".join(f",{name}:SASL_PLAINTEXT" for name in LISTENERS)
    properties = {
        **common,
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{mapped}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    for name, settings in LISTENERS.items():
        prefix = f"listener.name.{name.lower()}.oauthbearer."
        properties |= {prefix + setting: value for setting, value in settings.items()}
        properties[f"{prefix}sasl.jaas.config"] = f"{package}.OAuthBearerLoginModule required;"
        handler = f"{package}.OAuthBearerValidatorCallbackHandler"
        properties[f"{prefix}sasl.server.callback.handler.class"] = handler
    url = common["sasl.oauthbearer.jwks.endpoint.url"]
    allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"]
    try:
        with brokers.jars(properties, listeners=ports, java_options=allowed):
            yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    except brokers.BrokerMissing as error:
        judges.missing(str(error))


def make_token(claims: dict[str, Any] | str, key: Any, algorithm: str, **header: Any) -> str:
    """Build a token from parts. Claims with the value None are left out."""
    if isinstance(claims, dict):
        claims = json.dumps({name: value for name, value in claims.items() if value is not None})
    header = {name: value for name, value in header.items() if value is not None}
    token: str = jwt.PyJWS().encode(claims.encode(), key, algorithm, header)
    return token


def usual(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {
        "sub": "alice",
        "iss": "https://issuer.example",
        "aud": "kafka",
        "iat": now,
        "exp": now + 60,
        **more,
    }


Token = Callable[[Known], str]


def claiming(**claims: Any) -> Token:
    return lambda known: known.rsa.token("alice", **claims)


def at(**seconds: float) -> Token:
    """Return a token whose times are given in seconds from now."""
    return lambda known: known.rsa.token(
        "alice", **{name: time.time() // 1 + value for name, value in seconds.items()}
    )


def hand(algorithm: str = "RS256", **header: Any) -> Token:
    """Return a token that is signed with the first issuer's newest key and has this header."""
    return lambda known: make_token(usual(), known.rsa._private_key, algorithm, **header)


ALICE = "alice"
MATRIX: list[tuple[str, str, Token, str | None]] = [
    ("by RSA", "STRICT", claiming(), ALICE),
    ("by ECDSA", "STRICT", lambda known: known.ec.token("alice"), ALICE),
    ("by a key that nobody published", "STRICT", lambda known: known.stranger.token("alice"), None),
    (
        "by another key under a published one's name",
        "STRICT",
        lambda known: make_token(usual(), known.stranger._private_key, "RS256", kid="key-2"),
        None,
    ),
    ("by the older key's name", "STRICT", hand(kid="key-1"), None),
    ("without a key's name: the first key is meant", "STRICT", hand(), None),
    (
        "without a key's name, by the only one of its kind",
        "STRICT",
        lambda known: make_token(usual(), known.ec._private_key, "ES256"),
        ALICE,
    ),
    ("a key for another use", "STRICT", hand(kid="to-encrypt"), None),
    (
        "another algorithm's key, the only one of its name",
        "STRICT",
        hand("PS256", kid="key-2"),
        ALICE,
    ),
    (
        "too short a key",
        "STRICT",
        lambda known: make_token(usual(), known.short, "RS256", kid="short"),
        None,
    ),
    (
        "without a key's name, by the only one for its algorithm",
        "STRICT",
        lambda known: make_token(usual(), known.first, "PS256"),
        ALICE,
    ),
    ("RSA-PSS by a key for something else", "STRICT", hand("PS256", kid="ps-only"), None),
    (
        "a secret of both",
        "STRICT",
        lambda known: make_token(usual(), b"k" * 32, "HS256", kid="secret"),
        ALICE,
    ),
    ("another secret", "STRICT", lambda known: make_token(usual(), b"x" * 32, "HS256", kid="secret"), None),
    ("by nobody", "STRICT", lambda known: make_token(usual(), None, "none", kid="key-2"), None),
    ("with an extension that must be understood", "STRICT", hand(kid="key-2", crit=["exp"], exp=1), None),
    ("from another issuer", "STRICT", claiming(iss="https://elsewhere.example"), None),
    (
        "from another issuer, not asked for",
        "LENIENT",
        claiming(iss="https://elsewhere.example"),
        ALICE,
    ),
    ("from no issuer", "STRICT", claiming(iss=None), None),
    ("from no issuer, who is not asked for", "LENIENT", claiming(iss=None), ALICE),
    ("for the second audience", "STRICT", claiming(aud="others"), ALICE),
    ("for some, of whom one is expected", "STRICT", claiming(aud=["x", "kafka"]), ALICE),
    ("for another audience", "STRICT", claiming(aud="x"), None),
    ("for nobody", "STRICT", claiming(aud=None), None),
    ("for somebody, where nobody is expected", "OPEN", claiming(), None),
    ("for nobody, where nobody is expected", "OPEN", claiming(aud=None), ALICE),
    ("for a number", "OPEN", claiming(aud=5), None),
    ("ended within the skew", "STRICT", at(iat=-60, exp=-15), ALICE),
    ("ended before the skew", "STRICT", at(iat=-60, exp=-31), None),
    ("ended, with no skew", "NAMED", at(iat=-60, exp=-1), None),
    ("never ends", "STRICT", claiming(exp=None), None),
    ("ends at a text", "STRICT", claiming(exp="soon"), None),
    ("ends at a fraction", "STRICT", at(exp=30.5), ALICE),
    ("ended before 1970", "STRICT", claiming(exp=-5, iat=-10), None),
    ("was never issued", "STRICT", claiming(iat=None), None),
    ("is issued in the future", "STRICT", at(iat=50, exp=60), ALICE),
    ("ends before it was issued", "STRICT", at(iat=20, exp=10), None),
    ("holds in the skew", "STRICT", at(nbf=15), ALICE),
    ("holds after the skew", "STRICT", at(nbf=50), None),
    ("ends before it holds", "STRICT", at(nbf=20, exp=10), None),
    ("holds at a text", "STRICT", claiming(nbf="soon"), None),
    ("about nobody", "STRICT", claiming(sub=None), None),
    ("about an empty name", "STRICT", claiming(sub=""), None),
    ("about a blank name", "STRICT", claiming(sub="  "), None),
    ("about a name in blanks", "STRICT", claiming(sub=" alice "), ALICE),
    ("about a number", "STRICT", claiming(sub=5), None),
    ("about somebody by another claim", "NAMED", claiming(client_id="bob"), "bob"),
    ("about nobody by that claim", "NAMED", claiming(), None),
    ("about a number beside that claim", "NAMED", claiming(sub=5, client_id="bob"), None),
    ("with a number as its id", "STRICT", claiming(jti=5), None),
    ("with some scopes", "STRICT", claiming(scope=["a", "b"]), ALICE),
    ("with a scope as text", "STRICT", claiming(scope="a b"), ALICE),
    ("with a scope twice", "STRICT", claiming(scope=["a", "a"]), None),
    ("with an empty scope", "STRICT", claiming(scope=""), None),
    ("with a number as scope", "STRICT", claiming(scope=5), ALICE),
    ("with a scope twice under another name", "NAMED", claiming(may=["a", "a"], client_id="bob"), None),
    (
        "with a claim twice",
        "STRICT",
        lambda known: make_token(
            json.dumps(usual())[:-1] + ', "sub": "alice"}', known.rsa._private_key, "RS256", kid="key-2"
        ),
        None,
    ),
    (
        "with claims that are a list",
        "STRICT",
        lambda known: make_token("[]", known.rsa._private_key, "RS256", kid="key-2"),
        None,
    ),
    ("no JWT", "STRICT", lambda known: "abc", None),
    ("a JWT of four parts", "STRICT", lambda known: known.rsa.token("alice") + ".x", None),
    (
        "no signature",
        "STRICT",
        lambda known: known.rsa.token("alice").rpartition(".")[0] + ".",
        None,
    ),
]


def authenticate(place: str, token: str, principal: str) -> tuple[int, str | None, int]:
    """Log in with a token and the authorization id `principal`.

    Return the error code, the error message and the session lifetime.
    """
    with connected(place) as client:
        client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        exchange = OAuthBearerClient(token)
        first = exchange.begin().replace(b"n,,", f"n,a={principal},".encode(), 1)
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        if answer.error_code == 0 and answer.auth_bytes:
            after = exchange.answer(bytes(answer.auth_bytes))
            assert after is not None
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=after), 2)
        return answer.error_code, answer.error_message, answer.session_lifetime_ms


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
@pytest.mark.parametrize(
    ("listener", "token", "principal"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX]
)
def test_a_token_is_accepted_or_rejected(
    known: Known, listener: str, token: Token, principal: str | None
) -> None:
    code, words, session = authenticate(known.places[listener], token(known), principal or "alice")
    if principal is None:
        assert (code, words, session) == (58, TOLD, 0)
    else:
        assert (code, words) == (0, "")
        assert session <= 60_000


def by_credentials(known: Known, secret: str = SECRET) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": known.rsa.token_url,
        "sasl_oauthbearer_client_id": CLIENT,
        "sasl_oauthbearer_client_secret": secret,
        "sasl_oauthbearer_scope": "read",
    }


def test_a_client_authenticates_by_its_credentials_with_one_token_request(
    known: Known,
) -> None:
    before = len(known.rsa.requested_forms)
    with Admin(known.places["STRICT"], **by_credentials(known)) as cluster:
        cluster.topics()
        with Admin(known.places["STRICT"], **by_credentials(known)) as second:
            second.topics()
    assert known.rsa.requested_forms[before:] == [{"grant_type": "client_credentials", "scope": "read"}] * 2


def test_an_asyncio_client_authenticates_by_its_credentials(known: Known) -> None:
    async def asking() -> None:
        async with AsyncAdmin(known.places["STRICT"], **by_credentials(known)) as cluster:
            await cluster.topics()

    asyncio.run(asyncio.wait_for(asking(), 60))


def test_a_wrong_client_secret_is_reported_without_the_secret(known: Known) -> None:
    options = by_credentials(known, "wr0ng")
    with (
        pytest.raises(AuthenticationFailed, match="HTTP 401: are client id, secret and scope right") as error,
        Admin(known.places["STRICT"], timeout=20, **options) as cluster,
    ):
        cluster.topics()
    assert "wr0ng" not in str(error.value)


def test_the_error_for_a_token_of_another_audience_names_what_to_check(known: Known) -> None:
    options = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": lambda: known.rsa.token("alice", aud="x"),
    }
    words = r"rejects the token with OAUTHBEARER .*do the clocks agree\?\), and is it issued for this cluster"
    with (
        pytest.raises(AuthenticationFailed, match=words),
        Admin(known.places["STRICT"], timeout=20, **options) as cluster,
    ):
        cluster.topics()


@pytest.mark.java
def test_java_authenticates_by_its_credentials(known: Known, tmp_path: Path, kafka_jars: str) -> None:
    """Java's client sends its client id and secret to kproto's issuer and gets a token.

    The real Kafka and the embedded broker accept this token.
    """
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={known.rsa.token_url}\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="read";\n'
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={known.rsa.token_url}"
    call = [judges.java(), allowed, "-cp", kafka_jars, "org.apache.kafka.tools.TopicCommand"]
    call += ["--bootstrap-server", known.places["STRICT"], "--command-config", str(file)]
    call += ["--create", "--topic", f"t-{uuid4().hex[:12]}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
