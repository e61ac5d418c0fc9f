"""One wrong response stops a consumer or a producer for at most `metadata_max_age_ms` plus 3 s.

One response of a broker has one wrong value, in any field. All other responses are correct. Within the
limit above, the consumer resumes reading new records, and the producer resumes writing.

Records written before the wrong response may be skipped, because a client cannot detect that an offset of a
partition is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer.engine.network.connection import Connection
from kproto.errors import UnsupportedVersion
from kproto.messages.api_versions import ApiVersionsRequest
from tests.consumer.behaviour.lying_brokers import KEYS, Lie, LyingWorld

AGE_MS = 10_000
# The time in ms that request timeouts, session timeouts and rebalances may take, in addition to the maximum
# age of metadata.
SLACK_MS = 3_000
READS = (
    "ApiVersions", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit",
    "OffsetFetch", "ListOffsets", "Fetch", "OffsetForLeaderEpoch",
)  # fmt: skip
WRITES = ("ApiVersions", "Metadata", "InitProducerId", "Produce")


def lies(apis: tuple[str, ...]) -> st.SearchStrategy[Lie]:
    return st.tuples(st.sampled_from(apis), st.sampled_from([0, 0, 1, 3]), st.integers(0, 2**32))


def without(api: str) -> tuple[str, Callable[[list[Any]], list[Any]]]:
    """Return the change that removes an API from an ApiVersions response."""
    return "api_keys", lambda listed: [entry for entry in listed if entry.api_key != KEYS[api]]


def check_reads_on(lie: Lie, brokers: int = 2, **options: Any) -> None:
    """Check that, despite a broker's lie, a consumer reads each new record within a limit.

    The limit is the maximum age of metadata plus `SLACK_MS`.
    """
    world = LyingWorld(lie, "a", {"t": 2}, brokers=brokers)
    a = world.join(
        "a",
        topics=["t"],
        group_id="g",
        auto_offset_reset="earliest",
        metadata_max_age_ms=AGE_MS,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=8_000,
        request_timeout_ms=8_000,
        **options,
    )
    unread: dict[str, int] = {}
    number_of_lie: int | None = None
    for number in range(20):
        if world.lie:
            unread[f"{number}"] = world.now
        world.write("t", number % 2, f"{number}")
        world.run(2_000)
        for value in a.values():
            unread.pop(value, None)
        longest = max((world.now - written_at for written_at in unread.values()), default=0)
        assert longest <= AGE_MS + SLACK_MS, f"no record for {longest} ms after {world.lie}"
        if number_of_lie is None and world.lie:
            number_of_lie = number
        # Every timeout of the client has expired since the wrong response.
        if number_of_lie is not None and not unread and (number - number_of_lie) * 2_000 > AGE_MS + SLACK_MS:
            break


def check_writes_on(lie: Lie, brokers: int = 2) -> None:
    """Check that a producer soon writes again after a broker's lie.

    No pause may be longer than the maximum age of metadata plus `SLACK_MS`.
    """
    world = LyingWorld(lie, "p", {"t": 2}, brokers=brokers)
    producer = world.producer(
        client_id="p",
        linger_ms=0,
        delivery_timeout_ms=8_000,
        request_timeout_ms=4_000,
        metadata_max_age_ms=AGE_MS,
    )
    last_written_at = world.now
    for number in range(20):
        producer.send("t", f"{number}", partition=number % 2)
        producer.tick()
        world.run(2_000)
        if any(delivery.done() and delivery.exception() is None for delivery in producer.sent):
            last_written_at = world.now
        producer.sent = [delivery for delivery in producer.sent if not delivery.done()]
        silent_ms = world.now - last_written_at
        assert silent_ms <= AGE_MS + SLACK_MS, f"nothing was written for {silent_ms} ms after {world.lie}"


@given(lie=lies(READS))
@example(("ApiVersions", 0, without("Metadata")))
@example(("ApiVersions", 1, without("FindCoordinator")))
@example(("ApiVersions", 0, without("OffsetFetch")))
@example(("ApiVersions", 0, without("Fetch")))
@example(("ListOffsets", 0, ("throttle_time_ms", 2**31 - 1)))
@example(("JoinGroup", 0, ("throttle_time_ms", 2**31 - 1)))
@example(("JoinGroup", 1, ("leader", "other")))
@example(("JoinGroup", 1, ("members.metadata", b"")))
@example(("SyncGroup", 0, ("assignment", b"")))
def test_a_consumer_reads_on_after_one_lie(lie: Lie) -> None:
    check_reads_on(lie)


@given(lie=lies(WRITES))
@example(("ApiVersions", 0, without("Produce")))
@example(("ApiVersions", 0, without("InitProducerId")))
@example(("Produce", 0, ("throttle_time_ms", 2**31 - 1)))
def test_a_producer_writes_on_after_one_lie(lie: Lie) -> None:
    check_writes_on(lie)


@pytest.mark.parametrize("api", ["Metadata", "FindCoordinator", "ListOffsets", "OffsetFetch"])
def test_a_lasting_lack_of_a_request_is_raised_by_poll(api: str) -> None:
    """If a broker never lists an API that the consumer needs, poll raises an error.

    The error names the missing API and the broker. The client retries at most once per second.
    """
    world = LyingWorld(("ApiVersions", 0, without(api)), "a", {"t": 1})
    world.is_lasting = True
    a = world.join("a", topics=["t"], group_id="g", auto_offset_reset="earliest")
    world.run(20_000)
    assert isinstance(a.errors[-1], UnsupportedVersion)
    assert f"{api}: the broker at broker:9092 does not support this request" in str(a.errors[-1])
    assert 2 <= len(world.requests_of(a, ApiVersionsRequest)) <= 30
    world.is_lasting = False
    world.write("t", 0, "x")
    assert world.run(3_000, until=lambda: a.values() == ["x"])


def test_a_lasting_lack_of_produce_fails_the_delivery() -> None:
    world = LyingWorld(("ApiVersions", 0, without("Produce")), "p", {"t": 1})
    world.is_lasting = True
    producer = world.producer(client_id="p", linger_ms=0)
    delivery = producer.deliver("t", "x")
    world.run(5_000)
    assert isinstance(delivery.exception(), UnsupportedVersion)
    assert "Produce: the broker at broker:9092 does not support this request" in str(delivery.exception())


# ---- the checks above detect a client that relies on a single response


def believes_the_first_versions(self: Connection, call: Any) -> bytes:
    """A mutant of `Connection` that believes the first ApiVersions response until the connection ends."""
    call.awaits_versions = True
    return self._send(call)


def obeys_any_throttle_time(self: Connection, now: int, max_ms: int) -> tuple[str, int]:
    """A mutant of `Connection` that throttles for as long as a response demands."""
    return THROTTLE(self, now, 2**31 - 1)


THROTTLE = Connection.throttle


@pytest.mark.parametrize("api", ["Metadata", "FindCoordinator", "OffsetFetch", "ListOffsets"])
def test_the_mutant_that_believes_the_first_versions_is_detected(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "_ask_versions_again", believes_the_first_versions)
    with pytest.raises(AssertionError, match="after ApiVersions"):
        check_reads_on(("ApiVersions", 0, without(api)), brokers=1)


def test_the_mutant_that_obeys_any_throttle_time_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "throttle", obeys_any_throttle_time)
    with pytest.raises(AssertionError, match="after ListOffsets"):
        check_reads_on(("ListOffsets", 0, ("throttle_time_ms", 2**31 - 1)), brokers=1)
    with pytest.raises(AssertionError, match="after Produce"):
        check_writes_on(("Produce", 0, ("throttle_time_ms", 2**31 - 1)), brokers=1)
