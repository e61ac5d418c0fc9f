"""SASL logins, correct or not: a real Kafka and the embedded broker respond alike to the same frames.

Responses are compared by their error codes and texts. The order of the mechanisms is random in Kafka. Salts,
nonces and lifetimes always differ.

The tests omit three intended differences of the embedded broker:

* The broker closes the connection if another request arrives during a login.

* The broker does not distinguish an unknown user from a wrong password.

* The broker follows RFC 5802 for SCRAM extensions and for proofs of a wrong length.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.messages.metadata import MetadataRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.oauthbearer import OAuthBearerClient, unsecured, unsecured_token
from kproto.security.scram import ScramClient
from kproto.wire.message import Message
from tests.conformance import judges
from tests.conformance.raw_requests import exchange_frames

secured = pytest.importorskip("tests.conformance.secured_kafka")
pytestmark = [pytest.mark.kafka, pytest.mark.java]

CLOSED = "closed"
SCRAM = "SCRAM-SHA-256"
PLAIN_TEXT = b"\0alice\0alice-secret"
Step = tuple[Message, int] | bytes | float | Callable[[bytes], "Step"]


def handshake(mechanism: str = "PLAIN", version: int = 1) -> Step:
    return SaslHandshakeRequest(mechanism=mechanism), version


def token(data: bytes | str, version: int = 2) -> Step:
    return SaslAuthenticateRequest(auth_bytes=data.encode() if isinstance(data, str) else data), version


def metadata(version: int = 12) -> Step:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False), version


def versions(version: int = 3, name: str = "kproto") -> Step:
    return ApiVersionsRequest(client_software_name=name, client_software_version="1"), version


def plain(user: str = "alice") -> Step:
    return token(f"\0{user}\0{secured.USERS.get(user, 'x')}")


def proved(change: Callable[[str], str] = str, user: str = "alice", password: str = "") -> list[Step]:
    """Return the steps of a SCRAM login whose last message is changed by `change`."""
    client = ScramClient(SCRAM, user, password or secured.USERS["alice"], "n0nce")

    def last(challenge: bytes) -> Step:
        return token(change((client.answer(challenge) or b"").decode()))

    return [handshake(SCRAM), token(client.begin()), last]


def bearing(bearer_token: str = "") -> list[Step]:
    """A login with a token, by default a token of alice."""
    return [handshake("OAUTHBEARER"), token(OAuthBearerClient(bearer_token or secured.token()).begin())]


PAST = unsecured_token("alice", 1_000_000_000_000, 60_000)
BOB = unsecured_token("bob", secured.now_ms(), 3_600_000)


def first(text: str | bytes) -> list[Step]:
    return [handshake(SCRAM), token(text)]


INSIDE: list[Step] = [handshake(), plain()]


def cases_by_name() -> dict[str, list[Step]]:
    return {
        "a request before anything": [metadata()],
        "SaslAuthenticate before the handshake": [plain()],
        "versions, and a request": [versions(), metadata()],
        "versions twice": [versions(), versions()],
        "versions, and a login": [versions(), handshake(), plain(), metadata()],
        "versions that nobody has, and again": [b"\0\x12\0\x63\0\0\0\1\0\1c\0", versions(), handshake()],
        "versions with a bad name, and again": [versions(name="!"), versions(), handshake()],
        "versions behind the handshake": [handshake(), versions()],
        "versions of old behind the handshake": [handshake(), versions(0)],
        "a handshake behind the handshake": [handshake(), handshake()],
        "another mechanism behind the handshake": [handshake(), handshake(SCRAM)],
        "an unknown mechanism": [handshake("NONE")],
        "an unknown mechanism, in version 0": [handshake("NONE", 0)],
        "no mechanism": [handshake("")],
        "a mechanism in small letters": [handshake("plain")],
        "a handshake of a version that nobody has": [handshake(), b"\0\x11\0\x09\0\0\0\1\0\1x\0\5PLAIN"],
        "SaslAuthenticate of a version that nobody has": [handshake(), b"\0\x24\0\x09\0\0\0\1\0\1x\0"],
        "no request at all": [b"GET / HTTP/1.1"],
        "a frame of nothing": [b""],
        "nothing behind the handshake": [handshake(), b""],
        "bytes behind the handshake": [handshake(), PLAIN_TEXT],
        "by version 0": [handshake(version=0), PLAIN_TEXT, metadata()],
        "by version 0 with a header": [handshake(version=0), plain()],
        "by version 0 a wrong password": [handshake(version=0), b"\0alice\0wrong"],
        "by version 0 nothing": [handshake(version=0), b""],
        "inside": [*INSIDE, metadata()],
        "inside, SaslAuthenticate": [*INSIDE, plain()],
        "inside, versions": [*INSIDE, versions()],
        "inside, renewed": [*INSIDE, handshake(), plain(), metadata()],
        "inside, renewed twice": [*INSIDE, handshake(), plain(), handshake(), metadata()],
        "inside, renewed by version 0": [*INSIDE, handshake(version=0), PLAIN_TEXT, metadata()],
        "inside, renewed by another mechanism": [*INSIDE, handshake(SCRAM), token("n,,n=alice,r=x")],
        "inside, another mechanism, and a request": [*INSIDE, handshake(SCRAM), metadata()],
        "inside, renewed by no mechanism": [*INSIDE, handshake("NONE"), metadata()],
        "inside, renewed as another": [*INSIDE, handshake(), plain("bob")],
        "inside, renewed with a wrong password": [*INSIDE, handshake(), token("\0alice\0wrong")],
        "inside by SCRAM, renewed": [*proved(), *proved(), metadata()],
        "inside by SCRAM, renewed with a wrong password": [*proved(), *proved(password="wrong")],
        "inside by SCRAM, renewed as another": [*proved(), *proved(user="bob", password="bob-secret")],
        "inside by SCRAM, renewed by nonsense": [*proved(), *first("x")],
        "inside by a token, renewed by a bad one": [*bearing(), *bearing("x"), token("\1")],
        "inside by a token, renewed by one of the past": [*bearing(), *bearing(PAST), token("\1")],
        "inside by a token, renewed as another": [*bearing(), *bearing(BOB)],
        "inside for too long": [*INSIDE, 2.5, metadata()],
        "inside for too long, SaslAuthenticate": [*INSIDE, 2.5, plain()],
        "inside for too long, renewed": [*INSIDE, 2.5, handshake(), plain(), metadata()],
        **{
            f"PLAIN {message!r}": [handshake(), token(message)]
            for message in (
                b"",
                b"\0",
                b"\0\0",
                b"\0\0\0",
                b"\0\0\0\0\0",
                b"alice",
                b"\0\0alice-secret",
                b"\0alice\0",
                b"\0alice\0wrong",
                b"\0nobody\0x",
                b"alice\0alice\0alice-secret",
                b"bob\0alice\0alice-secret",
                b"bob\0alice\0wrong",
                b"\0alice\0alice-secret\0",
                b"\xff\0alice\0alice-secret",
                b"\xff",
                b"\0\xff\0x",
            )
        },
        "PLAIN of version 0": [handshake(), token(PLAIN_TEXT, 0)],
        **{
            f"SCRAM {message!r}": first(message)
            for message in (
                "",
                "n,,n=alice,r=x",
                "n,a=alice,n=alice,r=x",
                "n,a=bob,n=alice,r=x",
                "n,a=,n=alice,r=x",
                "n,a=al=2Cice,n=alice,r=x",
                "n,,n=alice,r=",
                "n,,n=,r=x",
                "n,,n=al=ice,r=x",
                "n,,n=alice,r=x y",
                "n,,n=alice,r=x,",
                "n,,n=alice,r=x,a=b",
                "n,,n=alice,r=x,a=",
                "n,,n=alice,r=x,1=2",
                "n,,n=alice,r=x,tokenauth=true",
                "n,,n=alice,r=x,tokenauth=false",
                "y,,n=alice,r=x",
                "p=tls-unique,,n=alice,r=x",
                "n=alice,r=x",
                "n,,n=alice,r=x\n",
                "n,,n=älice,r=x",
                b"n,,n=al\xffice,r=x",
            )
        },
        "SCRAM": [*proved(), metadata()],
        "SCRAM with a wrong password": proved(password="wrong"),
        "SCRAM with another nonce": proved(lambda text: text.replace("r=n", "r=N")),
        "SCRAM with a longer nonce": proved(lambda text: text.replace("r=n", "r=xn")),
        "SCRAM with another channel": proved(lambda text: text.replace("c=biws", "c=eSws")),
        "SCRAM with a proof of no base64": proved(lambda text: text.partition("p=")[0] + "p=!"),
        "SCRAM with a proof cut off": proved(lambda text: text[:-1]),
        "SCRAM without a proof": proved(lambda text: text.partition(",p=")[0]),
        "SCRAM with more behind it": proved(lambda text: text + ",x=y"),
        "SCRAM with nothing at the end": proved(lambda text: ""),
        "SCRAM, first message twice": [*proved()[:2], token("n,,n=alice,r=x")],
        "SCRAM, versions in the middle": [*proved()[:2], versions()],
    }


def responses_to(place: str, steps: Sequence[Step]) -> list[object]:
    """Send the frames of a login and return the responses. Stop when the broker closes the connection."""
    host, _, port = place.rpartition(":")
    responses: list[object] = []
    challenge = b""
    with socket.create_connection((host, int(port)), timeout=20) as line:
        for step in steps:
            if isinstance(step, float):
                time.sleep(step)
                continue
            if callable(step):
                step = step(challenge)
            request, version = (None, 0) if isinstance(step, bytes) else step
            data = step if isinstance(step, bytes) else encode_request(request, version, 7, "c")
            answer = exchange_frames(line, data)
            if answer is None:
                return [*responses, CLOSED]
            if request is None:
                responses.append(answer)
                continue
            _, response = decode_response(answer, response_class(request.__api_key__ or 0), version)
            challenge = bytes(getattr(response, "auth_bytes", b""))
            responses.append(essence(response))
        # After an error the broker may close the connection.
        if isinstance(responses[-1], tuple) and responses[-1][1]:
            line.settimeout(1)
            with contextlib.suppress(TimeoutError):
                if exchange_frames(line, None) is None:
                    responses.append(CLOSED)
    return responses


def essence(response: Any) -> tuple[object, ...]:
    parts = [
        type(response).__name__,
        getattr(response, "error_code", None),
        getattr(response, "error_message", None),
    ]
    for name in ("mechanisms", "auth_bytes", "session_lifetime_ms"):
        value = getattr(response, name, None)
        if name == "mechanisms" and value:
            value = sorted(value)
        elif name == "auth_bytes" and value:
            value = re.sub(rb"=[^,]+", b"", bytes(value))
        elif value:
            value = "some"
        parts.append(value)
    return tuple(parts)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    settings = {"connections.max.reauth.ms": secured.SESSION_MS}
    ours = running(
        {},
        settings,
        listen=["SASL_PLAINTEXT://127.0.0.1:0"],
        highest=judges.HIGHEST_OF_KAFKA,
        users=secured.USERS,
        tokens=unsecured(secured.now_ms),
    )
    with secured.real_kafka(tmp_path_factory.mktemp("logins")) as kafka, ours as server:
        yield kafka.places["SASL_PLAINTEXT"], server.places["SASL_PLAINTEXT"]


@pytest.mark.parametrize("name", list(cases_by_name()))
def test_both_brokers_answer_a_login_alike(places: tuple[str, str], name: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(lambda place: responses_to(place, cases_by_name()[name]), places)
    assert ours == theirs
