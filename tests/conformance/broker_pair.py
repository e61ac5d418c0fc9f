"""Send the same boundary requests to a real Kafka and the embedded broker, and compare the effects."""

from __future__ import annotations

import contextlib
import re
import select
import struct
import time
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from kproto.broker.apis.table import APIS
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.describe_client_quotas import DescribeClientQuotasRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.index import API_NAMES, request_class, response_class
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kproto.records import Record, batches, encode_batch
from kproto.transactions.state import OFFSETS_TOPIC
from kproto.wire.fields import REQUIRED
from kproto.wire.message import Message
from tests.broker.stage import Socket
from tests.conformance.boundary_requests import NO_ID, NOW, SOME_ID, Scene, draw_request

SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "offsets.topic.num.partitions": "4",  # As `real_kafka` configures it.
}
RANDOM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PATIENCE = 30.0
# A request counts as delayed if neither broker responds within this time in seconds. After the response of
# one broker, the other has PATIENCE seconds to respond.
SILENCE = 4.0

CLIENT_IDS: Final = (None, "", "é /=\0", "x" * 32_767)
# Tags of unknown tagged fields. Brokers must ignore the contents of these fields.
STRANGE_TAGS: Final = (99, 2**31 - 1)

NOT_READY: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
# APIs whose requests the controller executes. A broker may show the effect only some time after the response.
SLOW: Final = {
    "CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs", "AlterClientQuotas",
}  # fmt: skip

# Fields that are not compared: error messages, addresses, times and sizes.
FREE: Final = {
    "error_message", "batch_index_error_message", "cluster_id", "host", "port", "documentation", "synonyms",
    "throttle_time_ms", "last_timestamp", "transaction_start_time_ms", "record_errors", "supported_features",
    "finalized_features", "finalized_features_epoch", "log_dir", "total_bytes", "usable_bytes",
}  # fmt: skip

# API -> response field that lists every topic, group or transaction of the broker.
ALL: Final = {"Metadata": "topics", "ListGroups": "groups", "ListTransactions": "transaction_states"}
# API -> (request field, response field). If the request field is null, the response field lists everything.
IF_NULL: Final = {
    "DescribeLogDirs": ("topics", "results"),
    "ElectLeaders": ("topic_partitions", "replica_election_results"),
}


class Side:
    """One broker and its test data."""

    def __init__(self, bootstrap: str, title: str) -> None:
        self.bootstrap = bootstrap
        self.scene = Scene(title)
        self.socket = Socket(bootstrap)
        self.build()

    def close(self) -> None:
        self.socket.socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """Send a request and return the response.

        Return "waits" if no response arrives within `PATIENCE` seconds, and "closed" if the broker closes the
        connection.
        """
        self.socket.send(request, version)
        return self.answer(request, version)

    def answer(self, request: Message, version: int, until: float | None = None) -> Any:
        assert request.__api_key__ is not None
        end = time.monotonic() + PATIENCE if until is None else until
        self.socket.socket.settimeout(max(end - time.monotonic(), 0.2))
        try:
            # Brokers do not answer a Produce with acks=0, but may close the connection.
            if getattr(request, "acks", None) == 0:
                return self.ask(MetadataRequest(topics=[]), 12)
            return self.socket.answer(response_class(request.__api_key__), version)
        except TimeoutError:
            word = "waits"
        except ConnectionError:
            word = "closed"
        self.close()
        self.socket = Socket(self.bootstrap)
        return word

    def silent(self, until: float) -> bool:
        """Return whether no response arrives before `until`, a time (s) of the monotonic clock."""
        return not select.select([self.socket.socket], [], [], max(until - time.monotonic(), 0.0))[0]

    def until(self, request: Message, version: int, ready: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while not ready(answer := self.ask(request, version)):
            assert time.monotonic() < end, answer
            time.sleep(0.01)
        return answer

    def build(self) -> None:
        scene, name = self.scene, self.scene.name
        topics = [
            CreatableTopic(
                name=name(topic), num_partitions=n, replication_factor=1, assignments=[], configs=[]
            )
            for topic, n in (("t", 2), ("e", 1))
        ]
        answer = self.ask(CreateTopicsRequest(topics=topics), 7)
        scene.ids = {topic.name.rpartition("-")[2]: topic.topic_id for topic in answer.topics}
        for topic, index in (("t", 0), ("t", 1), ("e", 0)):
            partition = ListOffsetsPartition(partition_index=index, timestamp=-1)
            listed = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=name(topic), partitions=[partition])]
            )
            self.until(listed, 5, lambda response: not response.topics[0].partitions[0].error_code)
        for values in ((b"a", b"b"), (b"c",)):
            records = [Record(n, NOW + n, b"k", value) for n, value in enumerate(values)]
            part = PartitionProduceData(index=0, records=encode_batch(records))
            data = TopicProduceData(name=name("t"), partition_data=[part])
            self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        for kind in (0, 1):  # On the first FindCoordinator, a new Kafka cluster creates its internal topics.
            finding = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name("g")])
            self.until(finding, 6, lambda response: not response.coordinators[0].error_code)
        idempotent = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.until(idempotent, 4, lambda response: response.error_code not in NOT_READY)
        scene.idempotent = answer.producer_id, answer.producer_epoch
        named = InitProducerIdRequest(transactional_id=name("x"), transaction_timeout_ms=60_000)
        answer = self.until(named, 4, lambda response: response.error_code not in NOT_READY)
        scene.producer = answer.producer_id, answer.producer_epoch
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id=name("g"),
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name("t"), partitions=[partition])],
        )
        self.until(commit, 8, lambda response: response.topics[0].partitions[0].error_code not in NOT_READY)
        join = JoinGroupRequest(
            group_id=name("m"),
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        join.member_id = self.until(join, 5, lambda response: response.error_code not in NOT_READY).member_id
        answer = self.ask(join, 5)
        scene.member, scene.generation = answer.member_id, answer.generation_id
        plan = [SyncGroupRequestAssignment(member_id=scene.member, assignment=b"plan")]
        self.ask(
            SyncGroupRequest(
                group_id=name("m"),
                generation_id=scene.generation,
                member_id=scene.member,
                assignments=plan,
            ),
            3,
        )

    def settle(self) -> None:
        """Wait until the markers of this broker's transaction have been written."""
        request = DescribeTransactionsRequest(transactional_ids=[self.scene.name("x")])
        self.until(
            request, 0, lambda response: "Prepare" not in response.transaction_states[0].transaction_state
        )

    def describe(self) -> dict[str, Any]:
        """Describe the test data: topics, offsets, configs, committed offsets, transactions and quotas."""
        name = self.scene.name
        n = self.scene.count
        state: dict[str, Any] = {}
        odd = ("T", "t.t", "t_t")
        names = [
            name(topic)
            for topic in ("t", "e", *odd, *(f"n{i}{x}" for i in range(n + 1) for x in ("", "b", "c")))
        ]
        names += [name("x" * 249)[:249], name("t").replace("-", "_")]
        described = self.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
            ),
            12,
        )
        state["topics"] = self.comparable(described)
        for timestamp in (-1, -2):
            parts = [ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in (0, 1)]
            listed = ListOffsetsRequest(
                replica_id=-1,
                topics=[ListOffsetsTopic(name=name("t"), partitions=parts)],
            )
            state[f"ends {timestamp}"] = self.comparable(self.ask(listed, 6))
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name=name(topic), configuration_keys=None)
            for topic in ("t", "e", *odd)
        ]
        state["configs"] = self.comparable(self.ask(DescribeConfigsRequest(resources=resources), 4))
        groups = [OffsetFetchRequestGroup(group_id=name(group), topics=None) for group in ("g", "m")]
        state["offsets"] = self.comparable(self.ask(OffsetFetchRequest(groups=groups), 9))
        ids = DescribeTransactionsRequest(transactional_ids=[name("x")])
        state["transactions"] = self.comparable(self.ask(ids, 0))
        quotas = self.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
        quotas.entries = [
            entry
            for entry in quotas.entries
            if any((part.entity_name or "").startswith(self.scene.title) for part in entry.entity)
        ]
        state["quotas"] = self.comparable(quotas)
        return state

    def comparable(self, value: Any, name: str = "", kind: str = "") -> Any:
        """Return the comparable part of a response. Labels such as "an id" replace ids and other random
        values.
        """
        scene = self.scene
        if name in FREE:
            return None
        # Only these fields of a batch are compared. Producer ids and the timestamps of transaction markers
        # differ between the brokers.
        if name == "records":
            return [
                (batch.base_offset, batch.count, batch.is_control, batch.size)
                for batch in batches(value or b"")
            ]
        if name == "session_id":
            return value > 0
        if name == "producer_id" and isinstance(value, int):
            known = {scene.producer[0]: "own", scene.idempotent[0]: "idempotent", -1: -1, 0: 0}
            return known.get(value, "an id")
        if isinstance(value, uuid.UUID):
            known_ids = {topic_id: short for short, topic_id in scene.ids.items()}
            return value if value in (NO_ID, SOME_ID) else known_ids.get(value, "an id")
        if isinstance(value, str):
            if "member" in name or name == "leader":
                return "own" if value == scene.member else RANDOM.sub("random", value)
            return value
        if name == "log_append_time_ms" and value > 0:
            return "now"
        if isinstance(value, list):
            if name == "api_keys":  # Only APIs that both brokers serve are compared.
                value = [api for api in value if api.api_key in APIS]
            items = [self.comparable(item) for item in value if not empty(item)]
            if name in ("responses", "topics") and all("partitions" in item for item in items):
                items = by_topic(items)
            if all(isinstance(item, dict) for item in items):
                # Kafka shuffles some lists, so entries of a duplicate topic are sorted by their error codes.
                return sorted(
                    items, key=lambda item: (repr({**item, "error_code": 0}), str(item.get("error_code")))
                )
            return sorted(items, key=repr) if name == "partitions" else items
        if name == "error_code" or name == "partition_error_code":
            return ErrorCode(value).name
        if hasattr(type(value), "__fields__"):
            inside = {
                field.name: self.comparable(getattr(value, field.name), field.name)
                for field in type(value).__fields__
            }
            # Not compared: with eligible leader replicas (KIP-966), Kafka sets this config as a cluster
            # default, so its config_source differs.
            if inside.get("name") == "min.insync.replicas":
                inside["config_source"] = None
            # Not compared: the two brokers create this topic with different numbers of partitions.
            if inside.get("topic") == OFFSETS_TOPIC:
                inside["partitions"] = []
            if len(inside.get("members") or ()) != 1 and "skip_assignment" in inside:
                # Not compared: Kafka chooses the next leader from a hash map of random member ids.
                inside |= dict.fromkeys(("leader", "members", "skip_assignment"))
            if inside.get("resource_type") == 4:  # Broker configs differ.
                inside["configs"] = None
            return inside
        return value


def listing_everything(api: str, request: Any) -> bool:
    """Return whether the request selects entries without naming them, such as all users.

    The response to a request for all entries also contains entries that other tests created.
    """
    if api == "DescribeUserScramCredentials":
        return not request.users
    if api == "DescribeClientQuotas":
        return all(component.match_type in (1, 2) for component in request.components)
    return api == "DescribeTopicPartitions" and (not request.topics or request.cursor is not None)


class Pair:
    """A real Kafka and the embedded broker, each with test data whose names begin with `title`."""

    def __init__(self, real: str, embedded: str, title: str) -> None:
        self.sides = (Side(real, title), Side(embedded, title))
        self.last: tuple[str, list[Any]] = ("", [])
        # API key -> the highest version that the real Kafka lists.
        listed = self.sides[0].socket.listed_versions()
        self.highest = {key: highest for key, (_, highest) in listed.items()}

    def close(self) -> None:
        for side in self.sides:
            side.close()

    def differences(self, api: str, seed: str, odd: float, version: int | None = None) -> Iterator[str]:
        """Send a random request of an API to both brokers; yield the differences between the responses."""
        key = {name: key for key, name in API_NAMES.items()}[api]
        kind = request_class(key)
        dice = Random(seed)
        low, high = kind.__versions__.min, min(kind.__versions__.max, self.highest[key])
        if version is None:
            version = dice.choice([dice.randint(low, high), high])
        answers: list[Any] = []
        requests = [draw_request(kind, version, side.scene, f"{seed} {version}", odd) for side in self.sides]
        kafka_request = requests[0]
        if listing_everything(api, kafka_request):
            return
        client_id = dice.choice(CLIENT_IDS) if dice.random() < odd else "me"
        if version in kind.__flexible__ and dice.random() < odd:
            strange = {dice.choice(STRANGE_TAGS): b"?"}
            for request in requests:
                request.__unknown_tags__ = strange
        for side, request in zip(self.sides, requests, strict=True):
            side.socket.send(request, version, client_id)
        end = time.monotonic() + SILENCE
        # With acks=0 there is no response. Only the next request shows whether the connection is open.
        has_response = getattr(kafka_request, "acks", None) != 0
        if not has_response or len({side.silent(end) for side in self.sides}) > 1:
            end = time.monotonic() + PATIENCE
        for side, request in zip(self.sides, requests, strict=True):
            answer = side.answer(request, version, end)
            where = ALL.get(api) or everything_of(api, request)
            if isinstance(answer, str):
                answers.append(answer)
            else:
                answers.append(
                    side.comparable(answer if where is None else keep_own_entries(answer, where, side.scene))
                )
        if api in ("EndTxn", "InitProducerId"):
            self.sides[0].settle()
        self.last = f"{api} v{version} {brief(kafka_request)}", answers
        if answers[0] != answers[1]:
            yield f"{api} v{version} {brief(kafka_request)}\n{describe_difference(answers[0], answers[1])}"
        elif api in SLOW:
            yield from (
                f"{api} v{version} {brief(kafka_request)}\n{difference}"
                for difference in self.effect_differences()
            )

    def effect_differences(self) -> Iterator[str]:
        """Yield the differences between the states of the two brokers."""
        ours = self.sides[1].describe()
        end = time.monotonic() + PATIENCE
        while (kafka := self.sides[0].describe()) != ours and time.monotonic() < end:
            time.sleep(0.02)  # Compare again: a real Kafka may respond before a change is complete.
        for part in kafka:
            if kafka[part] != ours[part]:
                yield f"afterwards: {part}\n{describe_difference(kafka[part], ours[part])}"

    def next_case(self) -> None:
        for side in self.sides:
            side.scene.count += 1


def everything_of(api: str, request: Any) -> str | None:
    """Return the name of the response's array if the request asks for all entries, else None.

    Such a request has null instead of the array that would name the entries (`IF_NULL`).
    """
    request_field, response_field = IF_NULL.get(api, ("", None))
    return response_field if response_field is not None and getattr(request, request_field) is None else None


def keep_own_entries(answer: Any, where: str, scene: Scene) -> Any:
    """Remove the entries of other tests from a response that lists everything."""
    names = ("name", "topic", "group_id", "transactional_id")
    for entry in getattr(answer, where):
        if hasattr(entry, "log_dir"):
            keep_own_entries(entry, "topics", scene)
    entries = [
        entry
        for entry in getattr(answer, where)
        if any(str(getattr(entry, name, "")).startswith(scene.title) for name in names)
        or has_error(entry)
        or hasattr(entry, "log_dir")
    ]
    setattr(answer, where, entries)
    return answer


def has_error(entry: Any) -> bool:
    return bool(getattr(entry, "error_code", 0))


def empty(item: Any) -> bool:
    """Return whether this entry of a response is a topic without partitions and without an error code."""
    return not hasattr(item, "error_code") and getattr(item, "partitions", None) == []


def by_topic(items: list[Any]) -> list[Any]:
    """Merge the entries of each topic into one."""
    merged: dict[Any, Any] = {}
    for item in items:
        key = tuple(item.get(part) for part in ("topic", "name", "topic_id"))
        merged.setdefault(key, {**item, "partitions": []})["partitions"] += item["partitions"]
    return [{**topic, "partitions": sorted(topic["partitions"], key=repr)} for topic in merged.values()]


def records(data: bytes) -> str:
    """Return a record batch's header as text."""
    attributes, last, _, _, pid, epoch, sequence, count = struct.unpack_from(">hiqqqhii", data, 21)
    header = f"base {data[7]} magic {data[16]} attributes {attributes:x} last {last} count {count}"
    return f"<{len(data)} bytes: {header} producer {pid} epoch {epoch} sequence {sequence}>"


def brief(value: Any) -> str:
    """Return a request as text, without the fields whose value is the default."""
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if not hasattr(type(value), "__fields__"):
        return records(value) if isinstance(value, bytes) and len(value) > 60 else f"{value!r:.60}"
    fields = [
        f"{field.name}={brief(getattr(value, field.name))}"
        for field in type(value).__fields__
        if getattr(value, field.name) != field.initial() or field.default is REQUIRED
    ]
    return f"({', '.join(fields)})"


def describe_difference(kafka: Any, ours: Any, path: str = "") -> str:
    """Describe the differences between two responses, one line for each field."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        lines = [describe_difference(kafka[key], ours.get(key), f"{path}.{key}") for key in kafka]
        return "\n".join(line for line in lines if line)
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        lines = [
            describe_difference(a, b, f"{path}[{n}]")
            for n, (a, b) in enumerate(zip(kafka, ours, strict=True))
        ]
        return "\n".join(line for line in lines if line)
    return (
        ""
        if kafka == ours
        else f"    {path or 'all'}: kafka {kafka!r:.300}\n    {'':{len(path)}}   ours {ours!r:.300}"
    )


@contextlib.contextmanager
def pair(real: str, embedded: str, title: str) -> Iterator[Pair]:
    new_pair = Pair(real, embedded, title)
    try:
        yield new_pair
    finally:
        new_pair.close()
