"""A network client that authenticates to a broker as the user alice."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.call import Call, Outcome
from consumer.engine.network.client import NetworkClient
from consumer.engine.network.transport import (
    Broken,
    Data,
    Open,
    Opened,
    Write,
)
from consumer.security import security_options
from consumer.security.failures import CLOSED
from kproto.errors import AuthenticationFailed
from kproto.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.security.exchange import Accepted, Challenge, Rejected
from kproto.security.oauthbearer import OAuthBearerServer, unsecured
from kproto.security.plain import PlainServer
from kproto.security.scram import ScramServer, credential, salted
from kproto.wire.frame import Frames, frame
from kproto.wire.message import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
CREDENTIAL = credential("SCRAM-SHA-256", salted("SCRAM-SHA-256", "right", b"salt", 4096), b"salt", 4096)
SERVERS: dict[str, Callable[[], Any]] = {
    "PLAIN": lambda: PlainServer({"alice": "right"}.get),
    "SCRAM-SHA-256": lambda: ScramServer(
        "SCRAM-SHA-256", {"alice": CREDENTIAL}.get, "n", lambda name: CREDENTIAL
    ),
    "OAUTHBEARER": lambda: OAuthBearerServer(unsecured(lambda: int(time.time() * 1000))),
}


class LoginStage:
    """A network client, and a broker with the user alice.

    With `raw` the broker is too old for SaslAuthenticate.
    """

    def __init__(self, *, raw: bool = False, session_ms: int = 0, sasl: bool = True, **options: Any) -> None:
        defaults = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "alice", "sasl_password": "right"}
        if options.get("sasl_mechanism") == "OAUTHBEARER":
            defaults = {"security_protocol": "SASL_PLAINTEXT", "sasl_oauth_token_provider": self.no_token}
        security = security_options({**defaults, **options})
        self.network = NetworkClient([("a", 1), ("b", 1)], security=security, random=Random(1))
        self.network.view.brokers = {1: BrokerAddress(1, "a", 1)}
        self.raw, self.session_ms, self.sasl = raw, session_ms, sasl
        self.now = 0
        self.actions: list[Any] = []
        self.frames = Frames()
        self.server: Any = None
        self.bare = False
        self.silent = False
        # Whether the broker rejects renewals. Kafka's KafkaChannel rejects a re-authentication within a
        # second of the last login.
        self.too_soon = False
        self.versions_without_sasl = 0  # The number of ApiVersions responses that do not list SaslHandshake.
        self.answers_no: tuple[str, ...] = ()
        # The auth bytes of each SaslAuthenticate response; None if the SASL mechanism computes them.
        self.says: bytes | None = None
        self.offers = list(SERVERS)
        # Whether the connection breaks at the first request after the login.
        self.cut = False
        # The broker's error message for rejected credentials.
        self.repeats = ""
        # Connection key -> host.
        self.hosts: dict[int, str] = {}
        # Hosts that reject all credentials.
        self.refusing: set[str] = set()
        self.host = ""
        self.answers = 1 << 30  # The number of responses after which the connection breaks.
        self.seen: list[str] = []

    @staticmethod
    def no_token() -> str:
        raise AssertionError("the engine called the token provider; expected: an action requests the token")

    def ask(self) -> Call:
        call = self.network.send(HEARTBEAT, self.now, node=1)
        self.run()
        return call

    def happened(self, event: Any) -> None:
        self.network.handle(event, self.now)
        self.run()

    def tick(self, now: int) -> None:
        self.now = now
        self.network.tick(now)
        self.run()

    def run(self) -> None:
        while self.network.actions:
            actions, self.network.actions = self.network.actions, []
            self.actions += actions
            for action in actions:
                if isinstance(action, Open):
                    self.hosts[action.key] = action.host
                    self.network.handle(Opened(action.key), self.now)
                elif isinstance(action, Write):
                    for body in self.frames.feed(action.data):
                        name = type(decode_request(body).request).__name__ if self.answers_no else ""
                        if not self.silent and name.removesuffix("Request") not in self.answers_no:
                            self.serve(action.key, body)

    def serve(self, key: int, body: bytes) -> None:
        self.host = self.hosts[key]
        if self.bare:
            self.seen.append("frame")
            step = self.server.evaluate_response(body)
            self.bare = isinstance(step, Challenge)
            event = Broken(key, CLOSED) if isinstance(step, Rejected) else Data(key, frame(step.data))
            self.network.handle(event, self.now)
            return
        envelope = decode_request(body)
        name = type(envelope.request).__name__.removesuffix("Request")
        self.answers -= 1
        if self.answers < 0 or (self.cut and name == "Heartbeat"):
            self.network.handle(Broken(key, CLOSED), self.now)
            return
        self.seen.append(name)
        answer = self.answer(envelope.request, envelope.version)
        self.bare = self.raw and isinstance(envelope.request, SaslHandshakeRequest)
        correlation = envelope.header.correlation_id
        self.network.handle(
            Data(key, frame(encode_response(answer, envelope.version, correlation))), self.now
        )

    def answer(self, request: Message, version: int) -> Message:
        match request:
            case ApiVersionsRequest():
                has_sasl = self.sasl and not self.versions_without_sasl
                self.versions_without_sasl = max(0, self.versions_without_sasl - 1)
                versions = [(12, 0, 4), *([(17, 0, 0 if self.raw else 1)] if has_sasl else [])]
                versions += [] if self.raw else [(36, 0, 2)]
                keys = [
                    ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in versions
                ]
                return ApiVersionsResponse(error_code=0, api_keys=keys)
            case SaslHandshakeRequest() if self.too_soon:
                return SaslHandshakeResponse(error_code=34, mechanisms=[])
            case SaslHandshakeRequest(mechanism=mechanism):
                if mechanism not in SERVERS:
                    return SaslHandshakeResponse(error_code=33, mechanisms=self.offers)
                self.server = SERVERS[mechanism]()
                return SaslHandshakeResponse(error_code=0, mechanisms=self.offers)
            case SaslAuthenticateRequest() if self.host in self.refusing:
                return SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")
            case SaslAuthenticateRequest() if self.says is not None:
                return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=self.says)
            case SaslAuthenticateRequest(auth_bytes=data):
                step = self.server.evaluate_response(bytes(data))
                if isinstance(step, Rejected):
                    message = self.repeats or step.message
                    return SaslAuthenticateResponse(error_code=58, error_message=message, auth_bytes=b"")
                session = self.session_ms if isinstance(step, Accepted) else 0
                return SaslAuthenticateResponse(
                    error_code=0, error_message=None, auth_bytes=step.data, session_lifetime_ms=session
                )
            case _:
                return HeartbeatResponse(throttle_time_ms=0, error_code=0)

    def denied(self, call: Call) -> str:
        assert isinstance(call.error, AuthenticationFailed)
        assert call.outcome is Outcome.UNAUTHENTICATED
        return call.error.detail
