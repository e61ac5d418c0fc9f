"""A conversation between one client and one broker, read as it goes by: requests, and what came of them.

    talk = Conversation("127.0.0.1:50312", 1)
    talk.asked(frame, now)                     # from the client
    exchange = talk.answered(frame, now)       # from the broker
    passed = readdressed(frame, exchange, {("kafka-1", 9092): ("127.0.0.1", 19093)})
    talk.ended()                               # what was never answered

Rules that hold here:

* No exchange holds a password, a proof or a token: see `without_secrets`.
* What can't be read goes through as it is, and is an exchange that says so.
* A client that comes through a proxy shall go on coming through it, so the addresses in answers can be
  replaced; nothing else in an answer is changed, and one without addresses stays as it is, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from ..errors import DecodeError, UnsupportedVersion
from ..messages.describe_cluster import DescribeClusterResponse
from ..messages.fetch import FetchResponse
from ..messages.find_coordinator import FindCoordinatorResponse
from ..messages.headers import (
    UnsupportedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from ..messages.index import API_NAMES, response_class
from ..messages.metadata import MetadataResponse
from ..messages.produce import ProduceRequest, ProduceResponse
from ..messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ..messages.sasl_handshake import SaslHandshakeRequest
from ..messages.share_acknowledge import ShareAcknowledgeResponse
from ..messages.share_fetch import ShareFetchResponse
from ..security.identity import claimed_name, is_final_success
from ..wire.message import Message

Address = tuple[str, int]

# Where answers hold addresses: the attributes whose entries have a host and a port.
_ADDRESSES: dict[type[Message], tuple[str, ...]] = {
    MetadataResponse: ("brokers",),
    FindCoordinatorResponse: ("coordinators",),
    DescribeClusterResponse: ("brokers",),
    FetchResponse: ("node_endpoints",),
    ProduceResponse: ("node_endpoints",),
    ShareFetchResponse: ("node_endpoints",),
    ShareAcknowledgeResponse: ("node_endpoints",),
}

_CONFIGS = "resources.configs"
# What the names of settings end with that Kafka's ConfigDef calls a PASSWORD.
_PASSWORDS = ("password", "jaas.config", "keystore.key", "secret")
# API -> where it has proofs of who one is, in its request or its answer: (the lists they are in, field).
_SECRETS: dict[str, tuple[tuple[str, str], ...]] = {
    "AlterConfigs": ((_CONFIGS, "value"),),
    "IncrementalAlterConfigs": ((_CONFIGS, "value"),),
    "SaslAuthenticate": (("", "auth_bytes"),),
    "AlterUserScramCredentials": (("upsertions", "salted_password"),),
    "CreateDelegationToken": (("", "hmac"),),
    "DescribeDelegationToken": (("tokens", "hmac"),),
    "ExpireDelegationToken": (("", "hmac"),),
    "RenewDelegationToken": (("", "hmac"),),
}
_HIDDEN = b"[hidden]"
_KEYS = {name: key for key, name in API_NAMES.items()}
_API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35


@dataclass(slots=True)
class Exchange:
    """One request, and its answer if there was one.

    `asked_at` and `answered_at` are milliseconds of the caller's clock. `request` or `response` is None for
    what could not be read or did not come, and `trouble` says why. `size` counts the bytes of both frames,
    `names` are the topics that this client was told of, by their ids; `broker` is who was asked, and
    `principal` whom SASL let in on this connection, if it did.
    """

    connection: int
    peer: str
    client: str
    api: str
    version: int
    correlation_id: int
    asked_at: int
    request: Message | None
    answered_at: int | None = None
    response: Message | None = None
    trouble: str = ""
    size: int = 0
    names: Mapping[UUID, str] = field(default_factory=dict[UUID, str])
    broker: str = ""
    principal: str = ""

    @property
    def ms(self) -> int | None:
        """How long the answer took; None when there is none."""
        return None if self.answered_at is None else self.answered_at - self.asked_at


class Conversation:
    """One connection through a proxy. `peer` is the client's address, `connection` a number of its own;
    `names`, topics by their ids, may be shared: a client learns them on one connection and uses them on all.
    `broker` is a name of who is at the other end.
    """

    def __init__(
        self, peer: str, connection: int, names: dict[UUID, str] | None = None, broker: str = ""
    ) -> None:
        self.peer = peer
        self.broker = broker
        self.connection = connection
        self._open: dict[int, Exchange] = {}
        self._names = {} if names is None else names
        self._principal = ""
        self._mechanism = ""
        self._claimed: str | None = None  # whom a login that is not over yet names
        self._bare = False  # SaslHandshake v0 was asked for: what follows may be tokens without any header

    def asked(self, frame: bytes, now: int) -> tuple[Exchange, bool]:
        """A request's frame, without its size: it goes to the broker unchanged. True: nobody will answer."""
        correlation = int.from_bytes(frame[4:8], "big", signed=True)
        key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        api = API_NAMES.get(key, f"API {key}")
        found = Exchange(self.connection, self.peer, "", api, version, correlation, now, None)
        found.size, found.names, found.broker = len(frame), self._names, self.broker
        found.principal = self._principal
        try:
            envelope = decode_request(frame)
        except UnsupportedRequest as error:
            found.client = error.header.client_id or ""
            found.trouble = str(error)
        except (DecodeError, UnsupportedVersion) as error:
            found.trouble = f"the request can't be read: {error}"
        else:
            found.client = envelope.header.client_id or ""
            self._logs_in(envelope.request)
            found.request = without_secrets(found.api, envelope.request)
            self._bare = self._bare or (found.api, version) == ("SaslHandshake", 0)
        if isinstance(found.request, ProduceRequest) and found.request.acks == 0:
            return found, True
        self._open[correlation] = found
        return found, False

    def answered(self, frame: bytes, now: int) -> Exchange | None:
        """An answer's frame, without its size: the exchange that it ends, None when nobody asked for it."""
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        found = self._open.pop(correlation, None)
        if found is None:
            return None
        found.answered_at = now
        found.size += len(frame)
        if found.request is None and found.api != "ApiVersions":
            return found
        key = _KEYS[found.api]
        if key == _API_VERSIONS and int.from_bytes(frame[4:6], "big") == _UNSUPPORTED_VERSION:
            found.version = 0  # KIP-511
        try:
            _, response = decode_response(frame, response_class(key), found.version)
            self._let_in(response)
            found.response = without_secrets(found.api, response)
        except (DecodeError, UnsupportedVersion) as error:
            found.trouble = found.trouble or f"the answer can't be read: {error}"
        if isinstance(found.response, MetadataResponse):
            self._names.update({topic.topic_id: topic.name for topic in found.response.topics if topic.name})
        return found

    def _logs_in(self, request: Message) -> None:
        if isinstance(request, SaslHandshakeRequest):
            self._mechanism, self._claimed = request.mechanism, None
        elif isinstance(request, SaslAuthenticateRequest) and self._claimed is None:
            self._claimed = claimed_name(self._mechanism, bytes(request.auth_bytes))

    def _let_in(self, response: Message) -> None:
        if (
            isinstance(response, SaslAuthenticateResponse)
            and self._claimed is not None
            and not response.error_code
            and is_final_success(self._mechanism, bytes(response.auth_bytes))
        ):
            self._principal = f"User:{self._claimed}"

    def shown(self, frame: bytes, exchange: Exchange | None, *, asking: bool) -> bytes:
        """A frame of an exchange as it may be kept: no proof of who one is in it, else the same bytes.

        Zeros are what can't be read where such proofs are.
        """
        message = None if exchange is None else exchange.request if asking else exchange.response
        if exchange is None or exchange.api not in _SECRETS:
            return bytes(len(frame)) if message is None and self._bare else frame
        if message is None:
            head = 8 if asking else 4
            return frame[:head] + bytes(len(frame) - head)
        if asking:
            return encode_request(message, exchange.version, exchange.correlation_id, exchange.client)
        return encode_response(message, exchange.version, exchange.correlation_id)

    def ended(self) -> list[Exchange]:
        """The connection is gone: what will never be answered, in the order in which it was asked."""
        left, self._open = list(self._open.values()), {}
        for one in left:
            one.trouble = one.trouble or "the connection ended before the answer"
        return left


def without_secrets(api: str, message: Message) -> Message:
    """The message, in which what lets somebody in is replaced: lines, JSON and pages are shown around."""
    for inside, name in _SECRETS.get(api, ()):
        found: list[Any] = [message]
        for step in filter(None, inside.split(".")):
            found = [inner for one in found for inner in getattr(one, step, ())]
        for one in found:
            value = getattr(one, name, b"")
            if value and (inside != _CONFIGS or one.name.lower().endswith(_PASSWORDS)):
                setattr(one, name, _HIDDEN if isinstance(value, bytes) else _HIDDEN.decode())
    return message


def brokers_in(exchange: Exchange) -> list[Address]:
    """The addresses that an answer names, each once."""
    return list(dict.fromkeys((place.host, place.port) for place in _places(exchange.response)))


def readdressed(frame: bytes, exchange: Exchange, there: Mapping[Address, Address]) -> bytes:
    """The answer's frame with other addresses; the same bytes where none of them changes."""
    response = exchange.response
    moved = [place for place in _places(response) if (place.host, place.port) in there]
    if response is None or not moved:
        return frame
    before = [(place.host, place.port) for place in moved]
    for place in moved:
        place.host, place.port = there[place.host, place.port]
    try:
        return encode_response(response, exchange.version, exchange.correlation_id)
    finally:
        for place, (host, port) in zip(moved, before, strict=True):
            place.host, place.port = host, port


def _places(response: Any) -> Iterator[Any]:
    """Everything in an answer that has a host and a port."""
    for name in _ADDRESSES.get(cast("type[Message]", type(response)), ()):
        yield from (place for place in getattr(response, name) if place.host)
    if isinstance(response, FindCoordinatorResponse) and response.host:
        yield response
