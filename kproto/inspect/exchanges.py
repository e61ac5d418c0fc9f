"""Match the requests of a connection with their responses or failures.

    conversation = Conversation("127.0.0.1:50312", 1)
    conversation.add_request(frame, now)                  # from the client
    exchange = conversation.add_response(frame, now)      # from the broker
    forwarded = replace_addresses(frame, exchange, {("kafka-1", 9092): ("127.0.0.1", 19093)})
    conversation.close()                                  # the requests without a response

Rules:

* `without_secrets` removes passwords, SASL proofs and tokens from the messages of an exchange.

* Frames that cannot be decoded are forwarded unchanged. The exchange's `trouble` states the reason.

* `replace_addresses` replaces the addresses in a response, so that a client connects only to the proxy. Other
  fields do not change. A response without an address to replace is forwarded byte for byte.
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
    decode_request_views,
    decode_response,
    decode_response_views,
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

# Maps a response to the fields that are lists of brokers with host and port.
_ADDRESS_FIELDS: dict[type[Message], tuple[str, ...]] = {
    MetadataResponse: ("brokers",),
    FindCoordinatorResponse: ("coordinators",),
    DescribeClusterResponse: ("brokers",),
    FetchResponse: ("node_endpoints",),
    ProduceResponse: ("node_endpoints",),
    ShareFetchResponse: ("node_endpoints",),
    ShareAcknowledgeResponse: ("node_endpoints",),
}

_CONFIGS_PATH = "resources.configs"
# The suffixes of the names of all settings that Kafka's ConfigDef declares as PASSWORD, except the settings
# that contain certificates.
_PASSWORD_SUFFIXES = ("password", "passphrase", "jaas.config", "keystore.key", "secret", "secret.key")
# Maps an API to the fields of its request and response that hold credentials. Each field is a pair: the path
# of the list that contains it ("" for a field of the message itself), and its name.
_SECRET_FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    "AlterConfigs": ((_CONFIGS_PATH, "value"),),
    "IncrementalAlterConfigs": ((_CONFIGS_PATH, "value"),),
    "SaslAuthenticate": (("", "auth_bytes"),),
    "AlterUserScramCredentials": (("upsertions", "salted_password"),),
    "CreateDelegationToken": (("", "hmac"),),
    "DescribeDelegationToken": (("tokens", "hmac"),),
    "ExpireDelegationToken": (("", "hmac"),),
    "RenewDelegationToken": (("", "hmac"),),
}
_PLACEHOLDER = b"[hidden]"
# If a frame is larger than this size (in bytes), its records are not copied: they are views into the frame.
LARGE_FRAME = 1 << 20
_API_KEYS = {name: key for key, name in API_NAMES.items()}


@dataclass(slots=True)
class Exchange:
    """One request, with its response if one arrived.

    `asked_at` and `answered_at` are in milliseconds of the caller's clock. `request` and `response` are None
    if they could not be decoded. `response` is also None if it did not arrive. `trouble` states the reason.

    `size` is the number of bytes of both frames. `names` maps topic ids to the topic names that this client
    has received.

    `broker` is the name of the broker. `principal` is the user that SASL authenticated on this connection;
    empty if SASL has not authenticated a user.
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
        """The time in ms from the request to the response; None without a response."""
        return None if self.answered_at is None else self.answered_at - self.asked_at


class Conversation:
    """One connection through a proxy.

    `peer` is the client's address, and `connection` a unique number. `broker` is the name of the broker.

    `names` maps topic ids to topic names. All connections of a client should share one `names`: the client
    may receive a topic id on one connection and use it on another.
    """

    def __init__(
        self, peer: str, connection: int, names: dict[UUID, str] | None = None, broker: str = ""
    ) -> None:
        self.peer = peer
        self.broker = broker
        self.connection = connection
        # Correlation id -> exchange, for requests that wait for a response.
        self._unanswered: dict[int, Exchange] = {}
        self._names = {} if names is None else names
        self._principal = ""
        self._mechanism = ""
        # The user name of an authentication that the broker has not accepted yet.
        self._claimed_name: str | None = None
        # Whether the client has sent SaslHandshake v0, after which frames may be SASL tokens without a Kafka
        # header.
        self._may_receive_tokens = False

    def add_request(self, frame: bytes, now: int) -> tuple[Exchange, bool]:
        """Add the request in `frame`, which has no size prefix.

        Returns the exchange, and whether the request gets no response, as for Produce with acks=0.
        """
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        api = API_NAMES.get(key, f"API {key}")
        exchange = Exchange(
            connection=self.connection,
            peer=self.peer,
            client="",
            api=api,
            version=version,
            correlation_id=correlation_id,
            asked_at=now,
            request=None,
            size=len(frame),
            names=self._names,
            broker=self.broker,
            principal=self._principal,
        )
        try:
            envelope = (decode_request_views if len(frame) > LARGE_FRAME else decode_request)(frame)
        except UnsupportedRequest as error:
            exchange.client = error.header.client_id or ""
            exchange.trouble = str(error)
        except (DecodeError, UnsupportedVersion) as error:
            exchange.trouble = f"the request cannot be decoded: {error}"
        else:
            exchange.client = envelope.header.client_id or ""
            self._on_login_request(envelope.request)
            exchange.request = without_secrets(exchange.api, envelope.request)
            if (exchange.api, version) == ("SaslHandshake", 0):
                self._may_receive_tokens = True
        if isinstance(exchange.request, ProduceRequest) and exchange.request.acks == 0:
            return exchange, True
        self._unanswered[correlation_id] = exchange
        return exchange, False

    def add_response(self, frame: bytes, now: int) -> Exchange | None:
        """Add the response in `frame`, which has no size prefix.

        Returns the exchange that the response completes, or None if no open request has the response's
        correlation id.
        """
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        exchange = self._unanswered.pop(correlation_id, None)
        if exchange is None:
            return None
        exchange.answered_at = now
        exchange.size += len(frame)
        # Brokers answer an unknown version of ApiVersions in version 0, which can be decoded (KIP-511).
        if exchange.request is None and exchange.api != "ApiVersions":
            return exchange
        key = _API_KEYS[exchange.api]
        try:
            decode = decode_response_views if len(frame) > LARGE_FRAME else decode_response
            _, response = decode(frame, response_class(key), exchange.version)
            self._on_login_response(response)
            exchange.response = without_secrets(exchange.api, response)
        except (DecodeError, UnsupportedVersion) as error:
            exchange.trouble = exchange.trouble or f"the response cannot be decoded: {error}"
        if isinstance(exchange.response, MetadataResponse):
            self._names.update(
                {topic.topic_id: topic.name for topic in exchange.response.topics if topic.name}
            )
        return exchange

    def _on_login_request(self, request: Message) -> None:
        if isinstance(request, SaslHandshakeRequest):
            self._mechanism, self._claimed_name = request.mechanism, None
        elif isinstance(request, SaslAuthenticateRequest) and self._claimed_name is None:
            self._claimed_name = claimed_name(self._mechanism, bytes(request.auth_bytes))

    def _on_login_response(self, response: Message) -> None:
        if (
            isinstance(response, SaslAuthenticateResponse)
            and self._claimed_name is not None
            and not response.error_code
            and is_final_success(self._mechanism, bytes(response.auth_bytes))
        ):
            self._principal = f"User:{self._claimed_name}"

    def without_credentials(self, frame: bytes, exchange: Exchange | None, *, asking: bool) -> bytes:
        """Return a frame with its credentials replaced, or the same bytes if it has no credentials.

        If a frame with credentials cannot be decoded, its content is replaced by zeros. `asking` means that
        the frame is a request.
        """
        message = None
        if exchange is not None:
            message = exchange.request if asking else exchange.response
        if exchange is None or exchange.api not in _SECRET_FIELDS:
            may_be_token = message is None and self._may_receive_tokens
            return bytes(len(frame)) if may_be_token else frame
        if message is None:
            # Keep the correlation id, and the API key and version that precede it in a request.
            kept_size = 8 if asking else 4
            return frame[:kept_size] + bytes(len(frame) - kept_size)
        if asking:
            return encode_request(message, exchange.version, exchange.correlation_id, exchange.client)
        return encode_response(message, exchange.version, exchange.correlation_id)

    def close(self) -> list[Exchange]:
        """Close the connection. Return the exchanges without a response, in the order of their requests."""
        unanswered, self._unanswered = list(self._unanswered.values()), {}
        for exchange in unanswered:
            exchange.trouble = exchange.trouble or "the connection ended before the response"
        return unanswered


def without_secrets(api: str, message: Message) -> Message:
    """Replace the credentials in `message` itself, and return `message`.

    The output of kproto's tools then contains no credentials, so users can share it.
    """
    for path, name in _SECRET_FIELDS.get(api, ()):
        structs: list[Any] = [message]
        for step in filter(None, path.split(".")):
            structs = [inner for struct in structs for inner in getattr(struct, step, ())]
        for struct in structs:
            value = getattr(struct, name, b"")
            if value and (path != _CONFIGS_PATH or struct.name.lower().endswith(_PASSWORD_SUFFIXES)):
                setattr(struct, name, _PLACEHOLDER if isinstance(value, bytes) else _PLACEHOLDER.decode())
    return message


def addresses_in(exchange: Exchange) -> list[Address]:
    """Return the addresses that a response contains, without repetitions."""
    addresses = ((endpoint.host, endpoint.port) for endpoint in _endpoints_in(exchange.response))
    return list(dict.fromkeys(addresses))


def replace_addresses(frame: bytes, exchange: Exchange, replacements: Mapping[Address, Address]) -> bytes:
    """Return the response frame with replaced addresses, or the same bytes if no address is replaced.

    `exchange.response` keeps the original addresses.
    """
    response = exchange.response
    replaced = [
        endpoint for endpoint in _endpoints_in(response) if (endpoint.host, endpoint.port) in replacements
    ]
    if response is None or not replaced:
        return frame
    originals = [(endpoint.host, endpoint.port) for endpoint in replaced]
    for endpoint in replaced:
        endpoint.host, endpoint.port = replacements[endpoint.host, endpoint.port]
    try:
        return encode_response(response, exchange.version, exchange.correlation_id)
    finally:
        for endpoint, (host, port) in zip(replaced, originals, strict=True):
            endpoint.host, endpoint.port = host, port


def _endpoints_in(response: Any) -> Iterator[Any]:
    """Yield each struct that contains a broker's host and port; the response itself may be such a struct."""
    for name in _ADDRESS_FIELDS.get(cast("type[Message]", type(response)), ()):
        yield from (endpoint for endpoint in getattr(response, name) if endpoint.host)
    if isinstance(response, FindCoordinatorResponse) and response.host:
        yield response
