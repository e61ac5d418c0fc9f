"""A broker with users, and one connection to it, in virtual time."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any
from uuid import UUID

from kproto.broker.apis.table import served_versions
from kproto.broker.broker import Broker, Disconnect, SendFrame
from kproto.broker.call import Node
from kproto.broker.machine import ClientConnected, FrameReceived, ResponseSent, step
from kproto.broker.security.users import Users
from kproto.broker.settings import Settings
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.messages.metadata import MetadataRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.exchange import SaslClient
from kproto.security.scram import ScramClient
from kproto.wire.message import Message

PASSWORD = "alice-secret-1"
NODE = Node(1, "here", 9092, {"SASL_SSL": ("there", 9093)})
RANDOM = UUID(int=7)


def make_users() -> Users:
    """Return the users alice and bob."""
    return deepcopy(_users())


@cache
def _users() -> Users:
    """Compute the SCRAM keys of alice and bob once, because each computation takes some milliseconds."""
    return Users({"alice": PASSWORD, "bob": "b"}, b"secret")


class LoginStage:
    """A broker with users, and one connection to it."""

    def __init__(self, listener: str = "SASL_SSL", *, users: Users | None = None, **settings: str) -> None:
        properties = {name.replace("_", "."): value for name, value in settings.items()}
        self.users = users or make_users()
        self.broker = Broker(Settings.from_properties(properties), NODE, served_versions(), users=self.users)
        self.now = 1_000
        self.closed: str | None = None
        self.step(ClientConnected(1, "10.0.0.7", listener))

    def step(self, event: Any) -> list[bytes]:
        answers: list[bytes] = []
        events = [event]
        while events:
            for action in step(self.broker, events.pop(0), self.now):
                if isinstance(action, SendFrame):
                    answers.append(action.frame)
                    events.append(ResponseSent(1))
                elif isinstance(action, Disconnect):
                    self.closed = action.reason
        return answers

    def ask(self, request: Message, version: int) -> Any:
        """Send a request, and return its response, or None if the broker has not responded yet."""
        answers = self.step(FrameReceived(1, encode_request(request, version, 5, "test"), RANDOM))
        return self.read(request, version, answers)

    @staticmethod
    def read(request: Message, version: int, answers: list[bytes]) -> Any:
        key = request.__api_key__
        assert key is not None
        return decode_response(answers[0], response_class(key), version)[1] if answers else None

    def log_in(self, client: SaslClient) -> Any:
        """Log in with a SASL mechanism; return the last response."""
        response = self.ask(SaslHandshakeRequest(mechanism=client.mechanism), 1)
        data: bytes | None = client.begin()
        while data is not None and response is not None and not response.error_code:
            response = self.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
            if response is not None and not response.error_code:
                data = client.answer(bytes(response.auth_bytes))
        return response

    def alice(self, mechanism: str = "SCRAM-SHA-256") -> Any:
        return self.log_in(ScramClient(mechanism, "alice", PASSWORD, "nonce"))

    def metadata(self) -> Any:
        return self.ask(MetadataRequest(topics=[]), 1)
