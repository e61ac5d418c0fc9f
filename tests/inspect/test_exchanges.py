"""A proxy records requests and responses, replaces only addresses in responses, and hides credentials."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.inspect.exchange_json import to_json
from kproto.inspect.exchange_lines import groups_of, is_quiet, line
from kproto.inspect.exchanges import Conversation, Exchange, addresses_in, replace_addresses
from kproto.inspect.group_history import GroupHistory
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.headers import decode_request, decode_response, encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproto.messages.produce import ProduceRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kproto.wire.message import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="me-1")


def exchange_of(
    request: Message, version: int, response: Message, *, client: str = "me"
) -> tuple[bytes, Exchange]:
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(request, version, 7, client), 1_000)
    frame = encode_response(response, version, 7)
    exchange = conversation.add_response(frame, 1_012)
    assert exchange is not None
    return frame, exchange


def metadata_response(host: str = "kafka-1") -> MetadataResponse:
    broker = MetadataResponseBroker(node_id=1, host=host, port=9092)
    return MetadataResponse(brokers=[broker], topics=[])


def test_an_exchange_has_request_response_and_duration() -> None:
    _, exchange = exchange_of(HEARTBEAT, 4, HeartbeatResponse(error_code=25))
    assert (exchange.client, exchange.api, exchange.version, exchange.ms) == ("me", "Heartbeat", 4, 12)
    assert exchange.request == HEARTBEAT
    assert "UNKNOWN_MEMBER_ID" in line(exchange)


def test_only_addresses_are_replaced() -> None:
    frame, exchange = exchange_of(MetadataRequest(topics=[]), 9, metadata_response())
    assert addresses_in(exchange) == [("kafka-1", 9092)]
    forwarded = replace_addresses(frame, exchange, {("kafka-1", 9092): ("127.0.0.1", 19093)})
    _, decoded = decode_response(forwarded, MetadataResponse, 9)
    assert (decoded.brokers[0].host, decoded.brokers[0].port) == ("127.0.0.1", 19093)
    decoded.brokers[0].host, decoded.brokers[0].port = "kafka-1", 9092
    assert decoded == metadata_response()
    # The recorded exchange keeps the response of the broker, with the original addresses.
    assert exchange.response == metadata_response()


def test_a_response_without_known_addresses_is_unchanged() -> None:
    frame, exchange = exchange_of(MetadataRequest(topics=[]), 9, metadata_response())
    assert replace_addresses(frame, exchange, {("kafka-2", 9092): ("127.0.0.1", 1)}) is frame
    frame, exchange = exchange_of(HEARTBEAT, 4, HeartbeatResponse(error_code=0))
    assert replace_addresses(frame, exchange, {}) is frame


def test_a_response_that_cannot_be_decoded_is_forwarded_with_a_reason() -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(HEARTBEAT, 4, 7, "me"), 0)
    exchange = conversation.add_response(encode_response(HeartbeatResponse(error_code=0), 4, 7)[:-3], 1)
    assert exchange is not None
    assert exchange.response is None
    assert exchange.trouble.startswith("the response cannot be decoded: HeartbeatResponse v4: ")


def test_a_response_belongs_to_the_request_with_its_correlation_id_which_may_be_negative() -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    for number in (-2, 7):
        conversation.add_request(encode_request(HEARTBEAT, 4, number, f"client {number}"), 0)
    for number in (7, -2):
        exchange = conversation.add_response(encode_response(HeartbeatResponse(error_code=0), 4, number), 1)
        assert exchange is not None
        assert exchange.client == f"client {number}"
    assert conversation.add_response(encode_response(HeartbeatResponse(error_code=0), 4, 7), 2) is None


@pytest.mark.parametrize("number", [0x0102_0304, -0x0102_0304])
def test_all_bytes_of_a_correlation_id_count(number: int) -> None:
    conversation = Conversation("p:1", 1)
    exchange, _ = conversation.add_request(encode_request(HEARTBEAT, 4, number, "me"), 0)
    assert exchange.correlation_id == number
    response = encode_response(HeartbeatResponse(error_code=0), 4, number)
    assert conversation.add_response(response, 1) is exchange


def test_produce_without_acks_expects_no_response() -> None:
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    conversation = Conversation("127.0.0.1:5", 1)
    assert conversation.add_request(encode_request(request, 9, 7, "me"), 0)[1]
    assert conversation.close() == []


def test_an_unsupported_version_is_forwarded_with_a_reason() -> None:
    frame = bytearray(encode_request(HEARTBEAT, 4, 7, "me"))
    frame[2:4] = (99).to_bytes(2, "big")
    conversation = Conversation("127.0.0.1:5", 1)
    exchange, _ = conversation.add_request(bytes(frame), 0)
    assert (exchange.client, exchange.api, exchange.version, exchange.request) == (
        "me",
        "Heartbeat",
        99,
        None,
    )
    assert "99" in exchange.trouble
    assert conversation.add_response(b"\x00\x00\x00\x07anything", 5) is exchange


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, b"GET / HTTP/1.1\r\n\r\n"])
def test_garbage_is_forwarded(garbage: bytes) -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    exchange, _ = conversation.add_request(garbage, 0)
    assert exchange.trouble
    assert line(exchange)
    assert conversation.add_response(garbage[4:8], 1) in (None, exchange)


def test_a_request_without_a_response_is_reported() -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(HEARTBEAT, 4, 7, "me"), 0)
    [unanswered] = conversation.close()
    assert "the connection ended before the response" in line(unanswered)


@pytest.mark.parametrize("version", [4, 9])
def test_an_old_brokers_api_versions_response_is_decoded(version: int) -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    request = encode_request(ApiVersionsRequest(), 4, 7, "me")
    conversation.add_request(request[:2] + version.to_bytes(2, "big") + request[4:], 0)
    response = encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0, 7)
    exchange = conversation.add_response(response, 1)
    assert exchange is not None
    assert f"ApiVersions v{version}" in line(exchange)
    assert "UNSUPPORTED_VERSION" in line(exchange)
    assert to_json(exchange)["response"]["errorCode"] == 35


def test_subscriptions_are_decoded_and_member_ids_shortened() -> None:
    owned = (TopicPartition("t", 0),)
    data = Subscription(topics=("t", "u"), owned=owned).encode()
    member = "me-0f8fad5b-d9cb-469f-a165-70867728950e"
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=data)],
        reason="why not",
    )
    response = JoinGroupResponse(
        error_code=0, generation_id=4, protocol_name="range", leader="x", member_id=member, members=[]
    )
    text = line(exchange_of(request, 9, response)[1])
    assert "group=g member=me-0f8fad5b range(t, u owns t-0) because 'why not' -> generation=4" in text


def test_transactions_are_described() -> None:
    own: dict[str, Any] = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 2}
    init_request = InitProducerIdRequest(transaction_timeout_ms=9, **own)
    init_response = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=3)
    text = line(exchange_of(init_request, 5, init_response)[1])
    assert "x producer=7/2 timeout=9 ms -> producer id=7 epoch=3" in text
    non_transactional = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=9)
    assert "for no transactions ->" in line(exchange_of(non_transactional, 5, init_response)[1])

    end_response = EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=3)
    text = line(exchange_of(EndTxnRequest(committed=True, **own), 5, end_response)[1])
    assert "x producer=7/2 commit -> producer id=7 epoch=3" in text
    invalid_state = EndTxnResponse(throttle_time_ms=0, error_code=48)
    assert "abort -> INVALID_TXN_STATE" in line(
        exchange_of(EndTxnRequest(committed=False, **own), 4, invalid_state)[1]
    )

    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    add_request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    codes = [AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=51)]
    results = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=codes)]
    add_response = AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results)
    assert "x t-0, t-1 -> CONCURRENT_TRANSACTIONS (t-0)" in line(exchange_of(add_request, 3, add_response)[1])

    offsets = AddOffsetsToTxnRequest(group_id="g", **own)
    ok_response = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)
    assert "x producer=7/2 group=g -> ok" in line(exchange_of(offsets, 3, ok_response)[1])
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    offset_commit = TxnOffsetCommitRequest(
        group_id="g", topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])], **own
    )
    text = line(exchange_of(offset_commit, 3, TxnOffsetCommitResponse(throttle_time_ms=0, topics=[]))[1])
    assert "x producer=7/2 group=g" in text
    assert "t-0@5 -> ok" in text


def test_topic_ids_are_shown_by_the_names_in_metadata() -> None:
    id_ = UUID(int=5)
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(MetadataRequest(topics=None), 12, 1, "me"), 0)
    topic = MetadataResponseTopic(error_code=0, name="flights", topic_id=id_, partitions=[])
    response = MetadataResponse(brokers=[], topics=[topic])
    conversation.add_response(encode_response(response, 12, 1), 1)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[fetch_topic(id_)], forgotten_topics_data=[])
    exchange, _ = conversation.add_request(encode_request(request, 13, 2, "me"), 2)
    assert "flights-0@7" in line(exchange)


def fetch_topic(id_: UUID) -> FetchTopic:
    partition = FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1)
    return FetchTopic(topic_id=id_, partitions=[partition])


def test_a_heartbeat_is_routine_unless_it_fails() -> None:
    assert is_quiet(exchange_of(HEARTBEAT, 4, HeartbeatResponse(error_code=0))[1])
    assert not is_quiet(exchange_of(HEARTBEAT, 4, HeartbeatResponse(error_code=27))[1])


def test_groups_are_found_and_json_has_kafkas_form() -> None:
    _, exchange = exchange_of(HEARTBEAT, 4, HeartbeatResponse(error_code=0))
    assert groups_of(exchange) == {"g"}
    assert to_json(exchange)["request"]["generationId"] == 3


def test_a_sync_group_that_an_unknown_member_sends_loses_its_partitions() -> None:
    history = GroupHistory()
    assignment = Assignment(partitions=(TopicPartition("t", 0),)).encode()
    for generation, response in (
        (1, SyncGroupResponse(error_code=0, assignment=assignment)),
        (2, SyncGroupResponse(error_code=25, assignment=b"")),
    ):
        sync = SyncGroupRequest(group_id="g", generation_id=generation, member_id="m-1", assignments=[])
        history.add(exchange_of(sync, 5, response)[1])
    lost = [(event.partitions, event.reason) for event in history.events["g"] if event.kind == "lost"]
    assert lost == [((TopicPartition("t", 0),), "UNKNOWN_MEMBER_ID")]


def test_a_history_has_the_assigned_and_the_lost_partitions() -> None:
    history = GroupHistory()
    assignment = Assignment(partitions=(TopicPartition("t", 0),)).encode()
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m-1", assignments=[])
    history.add(exchange_of(sync, 5, SyncGroupResponse(error_code=0, assignment=assignment))[1])
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m-1")
    history.add(exchange_of(beat, 4, HeartbeatResponse(error_code=25))[1])
    events = [(event.kind, event.member, event.partitions) for event in history.events["g"]]
    assert events == [
        ("generation", "", ()),
        ("assigned", "me", (TopicPartition("t", 0),)),
        ("lost", "me", (TopicPartition("t", 0),)),
    ]
    assert "UNKNOWN_MEMBER_ID" in "\n".join(history.lines(0))


# ---- credentials, principals and addresses


def test_the_values_of_secret_configs_are_hidden_and_others_stay() -> None:
    configs = [
        AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in (
            ("ssl.keystore.PASSWORD", "s3cr3t"),
            ("listener.name.x.sasl.jaas.config", "s3cr3t"),
            ("sasl.oauthbearer.client.credentials.client.secret", "s3cr3t"),
            ("sasl.oauthbearer.assertion.private.key.passphrase", "s3cr3t"),
            ("delegation.token.secret.key", "s3cr3t"),
            ("retention.ms", "5"),
            ("ssl.key.password", None),
        )
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    frame = encode_request(request, 1, 7, "me")
    conversation = Conversation("127.0.0.1:5", 1)
    exchange, _ = conversation.add_request(frame, 0)
    shown = cast("IncrementalAlterConfigsRequest", exchange.request).resources[0].configs
    assert [config.value for config in shown] == [*["[hidden]"] * 5, "5", None]
    written = conversation.without_credentials(frame, exchange, asking=True)
    assert b"s3cr3t" not in written
    assert decode_request(written).request == exchange.request


def test_salted_passwords_and_tokens_are_hidden() -> None:
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"s3cr3t"
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    response = AlterUserScramCredentialsResponse(throttle_time_ms=0, results=[])
    _, exchange = exchange_of(request, 0, response)
    (shown,) = cast("AlterUserScramCredentialsRequest", exchange.request).upsertions
    assert (shown.salted_password, shown.salt) == (b"[hidden]", b"salt")
    token = DescribedDelegationToken(
        principal_type="User",
        principal_name="alice",
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id="id",
        hmac=b"s3cr3t",
        renewers=[],
    )
    described = DescribeDelegationTokenResponse(error_code=0, tokens=[token], throttle_time_ms=0)
    frame, exchange = exchange_of(DescribeDelegationTokenRequest(owners=None), 2, described)
    (shown_token,) = cast("DescribeDelegationTokenResponse", exchange.response).tokens
    assert (shown_token.hmac, shown_token.token_id) == (b"[hidden]", "id")
    written = Conversation("127.0.0.1:5", 1).without_credentials(frame, exchange, asking=False)
    assert b"s3cr3t" not in written
    assert decode_response(written, DescribeDelegationTokenResponse, 2)[1] == exchange.response


def test_the_user_of_a_successful_login_is_the_principal_of_later_exchanges() -> None:
    conversation = Conversation("127.0.0.1:5", 1)

    def ask(request: Message, version: int, response: Message) -> str:
        exchange, _ = conversation.add_request(encode_request(request, version, 7, "me"), 0)
        conversation.add_response(encode_response(response, version, 7), 1)
        return exchange.principal

    shaken = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    for code, principal in ((58, ""), (0, "User:alice")):
        login = SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=b"")
        assert ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, shaken) == ""
        assert ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0s3cr3t"), 2, login) == ""
        assert ask(HEARTBEAT, 4, HeartbeatResponse(error_code=0)) == principal


@pytest.mark.parametrize("version", [0, 3, 4])
def test_the_address_of_a_coordinator_is_replaced(version: int) -> None:
    """A FindCoordinator response has one coordinator up to version 3, and a list from version 4 on."""
    request = (
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        if version == 4
        else FindCoordinatorRequest(key="g")
    )
    fields: dict[str, Any] = {"node_id": 1, "host": "kafka-1", "port": 9092, "error_code": 0}
    response = (
        FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_message=None, **fields)])
        if version == 4
        else FindCoordinatorResponse(**fields)
    )
    frame, exchange = exchange_of(request, version, response)
    assert addresses_in(exchange) == [("kafka-1", 9092)]
    forwarded = replace_addresses(frame, exchange, {("kafka-1", 9092): ("127.0.0.1", 1)})
    _, decoded = decode_response(forwarded, FindCoordinatorResponse, version)
    place = decoded.coordinators[0] if version == 4 else decoded
    assert (place.host, place.port) == ("127.0.0.1", 1)
    failed = FindCoordinatorResponse(node_id=-1, host="", port=-1, error_code=15)
    assert addresses_in(exchange_of(FindCoordinatorRequest(key="g"), 0, failed)[1]) == []
