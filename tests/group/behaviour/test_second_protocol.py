"""A consumer works with a second group protocol. The consumer's engine and the simulated world use only the
interface of the protocol.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from consumer import Consumer
from consumer.security import client_properties
from kproto.errors import ConfigError, KprotoError
from kproto.group import protocol
from kproto.group.members import MEMBERS, create_member
from kproto.group.protocol import ClientMember, Identity, MemberConfig
from kproto.group.subscription import TopicPartition
from kproto.testing.world import World, tp
from kproto.wire.message import Message

ROOT = Path(__file__).resolve().parents[3]


class SoloMember:
    """A member that is alone in its group: it owns every partition of its topics and sends no request.

    The member's commits contain neither a member id nor a generation, like commits of a consumer that assigns
    partitions by hand.
    """

    member_id = ""
    generation: int | None = None
    identity: Identity | None = Identity(-1, "", None, "solo")
    joined_identity = identity
    assigned_identity = identity
    pattern: str | None = None
    cooperative = False
    is_joining = False
    is_rebalancing = False
    is_rejoining_repeatedly = False
    assignment_error: KprotoError | None = None

    def __init__(self, config: MemberConfig) -> None:
        self.topics: frozenset[str] = frozenset()
        self.partitions: dict[str, int] = {}
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_unsubscribing = False
        self.is_closing = False

    @property
    def topics_of_interest(self) -> frozenset[str]:
        return self.topics

    @property
    def is_stable(self) -> bool:
        return bool(self.owned) and not self.is_unsubscribing

    def step(self, event: protocol.MemberEvent, now: int) -> list[protocol.MemberAction]:
        match event:
            case protocol.SubscriptionChanged(topics=topics):
                self.topics = topics
                return self._assign()
            case protocol.MetadataUpdated(partitions=partitions):
                self.partitions |= partitions
                return self._assign()
            case protocol.Unsubscribed() | protocol.CloseRequested():
                self.topics, self.is_unsubscribing = frozenset(), True
                self.is_closing = isinstance(event, protocol.CloseRequested)
                purpose = (
                    protocol.RevokePurpose.CLOSE if self.is_closing else protocol.RevokePurpose.UNSUBSCRIBE
                )
                return [protocol.Revoke(self.owned, purpose)]
            case protocol.Released():
                self.owned, self.is_unsubscribing = (), False
                return [protocol.Left()] if self.is_closing else []
            case _:
                return []

    def _assign(self) -> list[protocol.MemberAction]:
        owned = tuple(
            TopicPartition(topic, index)
            for topic in sorted(self.topics)
            for index in range(self.partitions.get(topic, 0))
        )
        if owned == self.owned or self.is_unsubscribing:
            return []
        added = tuple(partition for partition in owned if partition not in self.owned)
        self.owned = owned
        return [protocol.AdoptAssignment(added, owned, -1)]

    def next_deadline(self) -> int | None:
        return None

    def on_poll(self, now: int) -> None:
        pass

    def assignment_deadline(self) -> int | None:
        return None

    def is_pending(self, request: Message) -> bool:
        return False

    def in_version(self, request: Message, version: int) -> Message:
        return request

    def retried_error(self, response: Message) -> int | None:
        return None


def test_a_toy_protocol_is_a_client_member() -> None:
    member: ClientMember = SoloMember(MemberConfig(group_id="g"))
    assert member.step(protocol.SubscriptionChanged(frozenset({"t"})), 0) == []


@pytest.fixture
def solo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register "solo" as a group protocol, in the table that lists the real group protocols."""
    monkeypatch.setitem(MEMBERS, "solo", SoloMember)


@pytest.fixture
def world(solo: None) -> World:
    return World({"t": 2})


def test_a_consumer_reads_and_commits_with_another_group_protocol(world: World) -> None:
    consumer = world.consumer(group_id="g", group_protocol="solo", auto_offset_reset="earliest")
    consumer.subscribe("t")
    world.write("t", 0, "x", "y")
    world.write("t", 1, "z")
    assert world.run(until=lambda: sorted(consumer.values()) == ["x", "y", "z"])
    token = consumer.commit()
    assert world.run(until=lambda: token in consumer.done)
    assert consumer.done[token] == (None, None)
    assert [world.committed("g", tp("t", partition)) for partition in range(2)] == [2, 1]


def test_a_consumer_closes_with_another_group_protocol(world: World) -> None:
    consumer = world.consumer(group_id="g", group_protocol="solo", auto_offset_reset="earliest")
    consumer.subscribe("t")
    world.write("t", 0, "x")
    assert world.run(until=lambda: consumer.values() == ["x"])
    token = consumer.close()
    assert world.run(until=lambda: token in consumer.done)
    assert [kind for kind, _ in consumer.calls] == ["assigned", "revoked"]
    assert world.committed("g", tp("t", 0)) == 1


def rejection(option: str) -> str:
    """Return a pattern for the error that rejects an unknown group protocol and lists the allowed ones."""
    return f"{re.escape(option)}='unknown'.*allowed: {', '.join(map(repr, MEMBERS))}"


def test_an_unknown_group_protocol_is_rejected_with_the_registered_names(solo: None) -> None:
    assert "solo" in MEMBERS
    with pytest.raises(ConfigError, match=rejection("group_protocol")):
        Consumer("localhost:9092", group_id="g", group_protocol="unknown")
    with pytest.raises(ConfigError, match=rejection("group_protocol")):
        create_member("unknown", MemberConfig(group_id="g"))


def test_the_property_group_protocol_selects_a_registered_protocol(solo: None, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.protocol=SOLO\n")
    assert client_properties(file) == {"group_protocol": "solo"}
    file.write_text("group.protocol=unknown\n")
    with pytest.raises(ConfigError, match=rejection("group.protocol")):
        client_properties(file)


@pytest.mark.parametrize("folder", ["consumer", "kproto/testing/world", "kproto/cli"])
def test_engine_world_and_command_line_do_not_import_the_classic_member(folder: str) -> None:
    importers = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "group.classic.member" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and "group.classic.member" in (node.module or "")
    ]
    assert importers == []
