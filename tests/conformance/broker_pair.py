"""Two brokers, each with the same scene: what one odd request after the other does to them, side by side."""

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
from tests.conformance.boundary_requests import NO_ID, NOW, SOME_ID, Scene, drawn

RANDOM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PATIENCE = 30.0
# Seconds after which a request is taken for one that waits, where the other broker is as silent; one that is
# silent alone may be slow, and is given PATIENCE.
SILENCE = 4.0

CLIENT_IDS: Final = (None, "", "é /=\0", "x" * 32_767)
# Numbers of tagged fields that nobody declares; what is in them is passed over.
STRANGE_TAGS: Final = (99, 2**31 - 1)

NOT_READY: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
# Those behind which Kafka's broker hears from its controller a little later.
SLOW: Final = {"CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs"}
# Words, addresses, and what depends on the moment.
FREE: Final = {
    "error_message", "batch_index_error_message", "cluster_id", "host", "port", "documentation", "synonyms",
    "throttle_time_ms", "last_timestamp", "transaction_start_time_ms", "record_errors", "supported_features",
    "finalized_features", "finalized_features_epoch", "log_dir", "total_bytes", "usable_bytes",
}  # fmt: skip
# Answers that tell of everything there is, and where.
ALL: Final = {"Metadata": "topics", "ListGroups": "groups", "ListTransactions": "transaction_states"}
# Those that do where this is null.
IF_NULL: Final = {
    "DescribeLogDirs": ("topics", "results"),
    "ElectLeaders": ("topic_partitions", "replica_election_results"),
}


class Side:
    """One broker and its scene."""

    def __init__(self, bootstrap: str, title: str) -> None:
        self.bootstrap = bootstrap
        self.scene = Scene(title)
        self.socket = Socket(bootstrap)
        self.build()

    def close(self) -> None:
        self.socket.socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """The answer, or the word for there being none."""
        self.socket.send(request, version)
        return self.answer(request, version)

    def answer(self, request: Message, version: int, until: float | None = None) -> Any:
        assert request.__api_key__ is not None
        end = time.monotonic() + PATIENCE if until is None else until
        self.socket.socket.settimeout(max(end - time.monotonic(), 0.2))
        try:
            if getattr(request, "acks", None) == 0:  # nothing is said, or the connection is closed
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
        """Does nothing come before?"""
        return not select.select([self.socket.socket], [], [], max(until - time.monotonic(), 0.0))[0]

    def until(self, request: Message, version: int, ready: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while not ready(answer := self.ask(request, version)):
            assert time.monotonic() < end, answer
            time.sleep(0.01)
        return answer

    def build(self) -> None:
        scene, name = self.scene, self.scene.name
        made = [
            CreatableTopic(name=name(one), num_partitions=n, replication_factor=1, assignments=[], configs=[])
            for one, n in (("t", 2), ("e", 1))
        ]
        answer = self.ask(CreateTopicsRequest(topics=made), 7)
        scene.ids = {topic.name.rpartition("-")[2]: topic.topic_id for topic in answer.topics}
        for one, index in (("t", 0), ("t", 1), ("e", 0)):
            asked = ListOffsetsPartition(partition_index=index, timestamp=-1)
            listed = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=name(one), partitions=[asked])]
            )
            self.until(listed, 5, lambda said: not said.topics[0].partitions[0].error_code)
        for values in ((b"a", b"b"), (b"c",)):
            records = [Record(n, NOW + n, b"k", value) for n, value in enumerate(values)]
            part = PartitionProduceData(index=0, records=encode_batch(records))
            data = TopicProduceData(name=name("t"), partition_data=[part])
            self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        for kind in (0, 1):  # a new Kafka makes its own topics when it is asked for them
            finding = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name("g")])
            self.until(finding, 6, lambda said: not said.coordinators[0].error_code)
        idempotent = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.until(idempotent, 4, lambda said: said.error_code not in NOT_READY)
        scene.idempotent = answer.producer_id, answer.producer_epoch
        named = InitProducerIdRequest(transactional_id=name("x"), transaction_timeout_ms=60_000)
        answer = self.until(named, 4, lambda said: said.error_code not in NOT_READY)
        scene.producer = answer.producer_id, answer.producer_epoch
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id=name("g"),
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name("t"), partitions=[one])],
        )
        self.until(commit, 8, lambda said: said.topics[0].partitions[0].error_code not in NOT_READY)
        join = JoinGroupRequest(
            group_id=name("m"),
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        join.member_id = self.until(join, 5, lambda said: said.error_code not in NOT_READY).member_id
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
        """Until the markers of the scene's transaction are written."""
        asked = DescribeTransactionsRequest(transactional_ids=[self.scene.name("x")])
        self.until(asked, 0, lambda said: "Prepare" not in said.transaction_states[0].transaction_state)

    def look(self) -> dict[str, Any]:
        """What became of the scene."""
        name = self.scene.name
        n = self.scene.count
        found: dict[str, Any] = {}
        odd = ("T", "t.t", "t_t")
        names = [
            name(one) for one in ("t", "e", *odd, *(f"n{i}{x}" for i in range(n + 1) for x in ("", "b", "c")))
        ]
        names += [name("x" * 249)[:249], name("t").replace("-", "_")]
        described = self.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
            ),
            12,
        )
        found["topics"] = self.seen(described)
        for timestamp in (-1, -2):
            parts = [ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in (0, 1)]
            listed = ListOffsetsRequest(
                replica_id=-1,
                topics=[ListOffsetsTopic(name=name("t"), partitions=parts)],
            )
            found[f"ends {timestamp}"] = self.seen(self.ask(listed, 6))
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name=name(one), configuration_keys=None)
            for one in ("t", "e", *odd)
        ]
        found["configs"] = self.seen(self.ask(DescribeConfigsRequest(resources=resources), 4))
        groups = [OffsetFetchRequestGroup(group_id=name(one), topics=None) for one in ("g", "m")]
        found["offsets"] = self.seen(self.ask(OffsetFetchRequest(groups=groups), 9))
        ids = DescribeTransactionsRequest(transactional_ids=[name("x")])
        found["transactions"] = self.seen(self.ask(ids, 0))
        return found

    def seen(self, value: Any, name: str = "", kind: str = "") -> Any:
        """What of an answer is compared."""
        scene = self.scene
        if name in FREE:
            return None
        if name == "records":  # markers have a time of their own, and producers their ids
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
            known_ids = {one: short for short, one in scene.ids.items()}
            return value if value in (NO_ID, SOME_ID) else known_ids.get(value, "an id")
        if isinstance(value, str):
            if "member" in name or name == "leader":
                return "own" if value == scene.member else RANDOM.sub("random", value)
            return value
        if name == "log_append_time_ms" and value > 0:
            return "now"
        if isinstance(value, list):
            if name == "api_keys":  # of what both serve, the versions
                value = [one for one in value if one.api_key in APIS]
            items = [self.seen(item) for item in value if not empty(item)]
            if name in ("responses", "topics") and all("partitions" in item for item in items):
                items = by_topic(items)
            if all(isinstance(item, dict) for item in items):
                # Kafka shuffles some: one topic that is there twice is told apart by the errors.
                return sorted(
                    items, key=lambda one: (repr({**one, "error_code": 0}), str(one.get("error_code")))
                )
            return sorted(items, key=repr) if name == "partitions" else items
        if name == "error_code" or name == "partition_error_code":
            return ErrorCode(value).name
        if hasattr(type(value), "__fields__"):
            inside = {
                field.name: self.seen(getattr(value, field.name), field.name)
                for field in type(value).__fields__
            }
            if (
                inside.get("name") == "min.insync.replicas"
            ):  # Kafka's elections make it a setting of the cluster
                inside["config_source"] = None
            if inside.get("topic") == OFFSETS_TOPIC:  # the two have other numbers of them
                inside["partitions"] = []
            if len(inside.get("members") or ()) != 1 and "skip_assignment" in inside:
                # Kafka's next leader is the first of a hash map, by ids that are random.
                inside |= dict.fromkeys(("leader", "members", "skip_assignment"))
            if inside.get("resource_type") == 4:  # the two have other settings
                inside["configs"] = None
            return inside
        return value


def listing_everything(api: str, request: Any) -> bool:
    """Does the request ask for all there is, in pages that others' topics fill?"""
    if api == "DescribeUserScramCredentials":
        return not request.users
    return api == "DescribeTopicPartitions" and (not request.topics or request.cursor is not None)


class Pair:
    """A real Kafka and the embedded broker, each with a scene of this title."""

    def __init__(self, real: str, embedded: str, title: str) -> None:
        self.sides = (Side(real, title), Side(embedded, title))
        self.last: tuple[str, list[Any]] = ("", [])

    def close(self) -> None:
        for side in self.sides:
            side.close()

    def differences(self, api: str, seed: str, odd: float, version: int | None = None) -> Iterator[str]:
        """Asks both one request of an API, and says where the answers differ."""
        key = {name: key for key, name in API_NAMES.items()}[api]
        kind = request_class(key)
        dice = Random(seed)
        low, high = kind.__versions__.min, kind.__versions__.max
        if api == "InitProducerId":
            high = 5
        if version is None:
            version = dice.choice([dice.randint(low, high), high])
        answers: list[Any] = []
        requests = [drawn(kind, version, side.scene, f"{seed} {version}", odd) for side in self.sides]
        asked = requests[0]
        if listing_everything(api, asked):
            return
        client_id = dice.choice(CLIENT_IDS) if dice.random() < odd else "me"
        if version in kind.__flexible__ and dice.random() < odd:
            strange = {dice.choice(STRANGE_TAGS): b"?"}
            for request in requests:
                request.__unknown_tags__ = strange
        for side, request in zip(self.sides, requests, strict=True):
            side.socket.send(request, version, client_id)
        end = time.monotonic() + SILENCE
        told = getattr(asked, "acks", None) != 0  # else it comes with the next request
        if not told or len({side.silent(end) for side in self.sides}) > 1:
            end = time.monotonic() + PATIENCE
        for side, request in zip(self.sides, requests, strict=True):
            answer = side.answer(request, version, end)
            where = ALL.get(api) or everything_of(api, request)
            if isinstance(answer, str):
                answers.append(answer)
            else:
                answers.append(side.seen(answer if where is None else mine(answer, where, side.scene)))
        if api in ("EndTxn", "InitProducerId"):
            self.sides[0].settle()
        self.last = f"{api} v{version} {brief(asked)}", answers
        if answers[0] != answers[1]:
            yield f"{api} v{version} {brief(asked)}\n{different(answers[0], answers[1])}"
        elif api in SLOW:
            yield from (f"{api} v{version} {brief(asked)}\n{one}" for one in self.what_became())

    def what_became(self) -> Iterator[str]:
        """Where the two scenes differ after all that."""
        ours = self.sides[1].look()
        end = time.monotonic() + PATIENCE
        while (kafka := self.sides[0].look()) != ours and time.monotonic() < end:
            time.sleep(0.02)  # a real one does some of it behind its answer
        for part in kafka:
            if kafka[part] != ours[part]:
                yield f"afterwards: {part}\n{different(kafka[part], ours[part])}"

    def next_case(self) -> None:
        for side in self.sides:
            side.scene.count += 1


def everything_of(api: str, request: Any) -> str | None:
    """Where the answer tells of everything, if the request asks for that."""
    given, told = IF_NULL.get(api, ("", None))
    return told if told is not None and getattr(request, given) is None else None


def mine(answer: Any, where: str, scene: Scene) -> Any:
    """Of an answer that tells of everything, what is the scene's."""
    names = ("name", "topic", "group_id", "transactional_id")
    for one in getattr(answer, where):
        if hasattr(one, "log_dir"):
            mine(one, "topics", scene)
    kept = [
        one
        for one in getattr(answer, where)
        if any(str(getattr(one, name, "")).startswith(scene.title) for name in names)
        or one_error(one)
        or hasattr(one, "log_dir")
    ]
    setattr(answer, where, kept)
    return answer


def one_error(one: Any) -> bool:
    return bool(getattr(one, "error_code", 0))


def empty(item: Any) -> bool:
    """A topic of which nothing is told."""
    return not hasattr(item, "error_code") and getattr(item, "partitions", None) == []


def by_topic(items: list[Any]) -> list[Any]:
    """What is told of one topic in several places, in one."""
    found: dict[Any, Any] = {}
    for item in items:
        key = tuple(item.get(part) for part in ("topic", "name", "topic_id"))
        found.setdefault(key, {**item, "partitions": []})["partitions"] += item["partitions"]
    return [{**one, "partitions": sorted(one["partitions"], key=repr)} for one in found.values()]


def records(data: bytes) -> str:
    """What the head of a batch says, if it is one."""
    attributes, last, _, _, pid, epoch, sequence, count = struct.unpack_from(">hiqqqhii", data, 21)
    told = f"base {data[7]} magic {data[16]} attributes {attributes:x} last {last} count {count}"
    return f"<{len(data)} bytes: {told} producer {pid} epoch {epoch} sequence {sequence}>"


def brief(value: Any) -> str:
    """A request without what is at its default."""
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if not hasattr(type(value), "__fields__"):
        return records(value) if isinstance(value, bytes) and len(value) > 60 else f"{value!r:.60}"
    told = [
        f"{one.name}={brief(getattr(value, one.name))}"
        for one in type(value).__fields__
        if getattr(value, one.name) != one.initial() or one.default is REQUIRED
    ]
    return f"({', '.join(told)})"


def different(kafka: Any, ours: Any, path: str = "") -> str:
    """Where two answers differ, a line for each place."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        lines = [different(kafka[key], ours.get(key), f"{path}.{key}") for key in kafka]
        return "\n".join(line for line in lines if line)
    if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        lines = [different(a, b, f"{path}[{n}]") for n, (a, b) in enumerate(zip(kafka, ours, strict=True))]
        return "\n".join(line for line in lines if line)
    return (
        ""
        if kafka == ours
        else f"    {path or 'all'}: kafka {kafka!r:.300}\n    {'':{len(path)}}   ours {ours!r:.300}"
    )


@contextlib.contextmanager
def pair(real: str, embedded: str, title: str) -> Iterator[Pair]:
    made = Pair(real, embedded, title)
    try:
        yield made
    finally:
        made.close()
