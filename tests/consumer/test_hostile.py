"""A broker that answers any request with any error, for a minute: the client neither hangs nor spins, its
application is told, and goes on when the broker is itself again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kproto.error_codes import ErrorCode
from kproto.messages.fetch import FetchRequest
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.index import API_NAMES, response_class
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.testing.world.network import Wire
from kproto.wire.message import Message
from tests.consumer.world import Consumer, World

KEYS = {name: key for key, name in API_NAMES.items()}
PLACES = [
    "ApiVersions error_code",
    "FindCoordinator coordinators.error_code",
    "Metadata error_code",
    "Metadata topics.error_code",
    "Metadata topics.partitions.error_code",
    "JoinGroup error_code",
    "SyncGroup error_code",
    "Heartbeat error_code",
    "LeaveGroup error_code",
    "LeaveGroup members.error_code",
    "OffsetFetch groups.error_code",
    "OffsetFetch groups.topics.partitions.error_code",
    "OffsetCommit topics.partitions.error_code",
    "ListOffsets topics.partitions.error_code",
    "Fetch error_code",
    "Fetch responses.partitions.error_code",
]
CODES = [*(code for code in ErrorCode if code), 9999, -32768]
TELLS = {"lost", "missing", "refused", "reset", "truncated", "uncommitted", "unreachable"}
# In ten seconds: what a client that waits between its tries asks at most of one kind, of two brokers.
MOST = 60


def parts(message: Message, path: list[str]) -> Iterator[Message]:
    """The structs of an answer in which the last name of a path stands."""
    if len(path) == 1:
        yield message
        return
    found: Any = getattr(message, path[0])
    for part in found or ():
        yield from parts(part, path[1:])


class Hostile(World):
    """Its brokers answer with `code` in one place, while `bad`."""

    def __init__(self, place: str, code: int) -> None:
        super().__init__({"t": 2}, brokers=2)
        api, _, path = place.partition(" ")
        self.key, self.path, self.code = KEYS[api], path.split("."), code
        self.bad, self.hits = False, 0

    def _reply(self, wire: Wire, body: bytes) -> None:
        key, version = self.keys[wire.conn]
        if self.bad and key == self.key:
            correlation_id, answer = decode_response(body, response_class(key), version)
            for part in parts(answer, self.path):
                setattr(part, self.path[-1], self.code)
                self.hits += 1
            body = encode_response(answer, version, correlation_id)
        super()._reply(wire, body)

    def put(self) -> None:
        for partition in (0, 1):
            self.write("t", partition, "x")


def final(a: Consumer) -> bool:
    """Over for good, and every poll says so."""
    return bool(a.errors) and getattr(a.errors[-1], "code", 0) == ErrorCode.FENCED_INSTANCE_ID


@given(place=st.sampled_from(PLACES), late=st.booleans(), code=st.sampled_from(CODES))
@example(place="Fetch responses.partitions.error_code", late=True, code=ErrorCode.OFFSET_OUT_OF_RANGE)
def test_any_error_in_any_place_is_waited_out_and_told(place: str, late: bool, code: int) -> None:
    world = Hostile(place, code)
    world.put()
    a = world.consumer(group_id="g", auto_offset_reset="earliest", session_timeout_ms=20_000)
    world.bad = not late
    a.subscribe("t")
    if late:
        world.run(10_000)
        world.bad = True
    read, told, raised = len(a.records), len(a.changes), len(a.errors)
    commits: list[object] = []
    for _ in range(6):
        asked = len(world.requests)
        world.put()
        world.run(10_000)
        per = Counter(type(request).__name__ for _, request, _ in world.requests[asked:])
        assert max(per.values()) <= MOST, per
        commits.append(a.commit(timeout_ms=5_000))
    world.run(6_000)
    assert all(commit in a.done for commit in commits)
    heard = any(change.kind in TELLS for change in a.changes[told:]) or len(a.errors) > raised
    assert not world.hits or heard or len(a.records) - read >= 12
    world.bad = False
    world.put()
    world.run(70_000)
    ends = {partition: world.log(partition).end_offset for partition in world.partitions()}
    assert final(a) or {partition: a.position(partition) for partition in ends} == ends
    world.bad = True
    closing = a.close(timeout_ms=10_000)
    world.run(11_000)
    assert closing in a.done


def test_a_leader_to_whom_every_start_is_out_of_range_is_asked_less_and_less() -> None:
    world = Hostile("Fetch responses.partitions.error_code", ErrorCode.OFFSET_OUT_OF_RANGE)
    world.put()
    a = world.consumer(auto_offset_reset="earliest")
    world.bad = True
    a.assign(dict.fromkeys(world.partitions()))
    world.run(10_000)
    assert len(world.asked(a, ListOffsetsRequest)) <= 30
    assert len(world.asked(a, FetchRequest)) <= 30
    world.bad = False
    assert world.run(2_000, until=lambda: len(a.records) == 2)
