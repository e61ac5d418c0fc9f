"""A response updates the brokers and topics of the cluster metadata, and goroutines share refreshes."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.models import sarama
from kproto.models.contract import CloseConnection, ModelConfig, Notify, Started
from kproto.models.sarama import errors
from kproto.models.sarama.metadata import Metadata
from tests.models.sarama.stage import (
    ClientStage,
    metadata_of,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
)


def metadata_of_client() -> Metadata:
    """Return the metadata of a client that has two bootstrap addresses and has received no response."""
    state = sarama.start(ModelConfig(client_id="a", group_id="g", random=lambda: 0.0))
    sarama.step(state, Started((("one", 9092), ("two", 9092)), {}), 0)
    return state.metadata


def response(*partitions: tuple[int, int], code: int = 0, brokers: int = 2) -> MetadataResponse:
    """Return a Metadata response for topic t, with the (leader, leader epoch) of each partition."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"broker{node}", port=9092)
            for node in range(1, brokers + 1)
        ],
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=UUID(int=7),
                error_code=code,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[],
                        isr_nodes=[],
                        offline_replicas=[],
                    )
                    for index, (leader, epoch) in enumerate(partitions)
                ],
            )
        ],
    )


def test_a_response_names_brokers_partitions_and_leaders() -> None:
    metadata = metadata_of_client()
    assert metadata.update(response((1, 0), (2, 0)), everything=True) == (False, {})
    assert metadata.partitions("t") == [0, 1]
    leader = metadata.leader("t", 1)
    assert not isinstance(leader, errors.GoError)
    assert (leader[0].id, leader[0].address.host) == (2, "broker2")


def test_an_older_leader_epoch_is_ignored() -> None:
    metadata = metadata_of_client()
    metadata.update(response((2, 5)), everything=True)
    metadata.update(response((1, 4)), everything=True)
    leader = metadata.leader("t", 0)
    assert not isinstance(leader, errors.GoError)
    assert (leader[0].id, leader[1]) == (2, 5)


def test_an_unknown_topic_is_removed_and_the_refresh_repeated() -> None:
    metadata = metadata_of_client()
    metadata.update(response((1, 0)), everything=True)
    assert metadata.update(response(code=3), everything=False) == (True, {"t": errors.UNKNOWN_TOPIC})
    assert metadata.partitions("t") == []
    assert metadata.leader("t", 0) == errors.UNKNOWN_TOPIC


def test_a_broker_that_a_response_does_not_list_is_removed() -> None:
    metadata = metadata_of_client()
    metadata.update(response((1, 0), (2, 0)), everything=True)
    metadata.update(response((1, 0), (2, 0), brokers=1), everything=True)
    assert list(metadata.brokers) == [1]
    assert metadata.leader("t", 1) == errors.LEADER_NOT_AVAILABLE


def test_bootstrap_addresses_that_failed_are_restored_when_none_is_left() -> None:
    metadata = metadata_of_client()
    first, second = metadata.seeds
    metadata.deregister(first)
    assert [seed.address.host for seed in metadata.seeds] == ["two"]
    metadata.deregister(second)
    assert metadata.candidates() == []
    metadata.resurrect()
    assert [seed.address.host for seed in metadata.seeds] == ["one", "two"]


def test_the_updater_requests_all_topics_at_each_interval() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    count = len(requests_of(a, "Metadata"))
    stage.run(3_000)
    assert requests_of(a, "Metadata")[count:] == ["Metadata v11 all"] * 3


def test_no_metadata_is_requested_while_a_join_is_open() -> None:
    stage, a = stage_with_client(metadata_ms=500)
    a.hold("Join", 3_000)
    a.run_command("subscribe t")
    stage.run(6_000)
    start = time_of_request(a, "Join", 0)
    times = [line.now for line in a.lines if line.api == "Metadata"]
    assert not [time for time in times if start < time < start + 3_000]
    assert [time for time in times if time >= start + 3_000]


def refresh(*topics: str, connected: bool = True, **conf: object) -> ClientStage:
    stage = ClientStage(connected=connected, **conf)
    return stage.start(lambda: stage.client.metadata.request_refresh(stage.caller, topics))


def topics_in(stage: ClientStage) -> list[list[str] | None]:
    return [
        None if request.topics is None else [topic.name for topic in request.topics]
        for request in stage.requests_of("Metadata")
    ]


def test_a_broker_with_a_new_address_closes_its_old_connection_and_keeps_its_id() -> None:
    stage = ClientStage()
    metadata = stage.client.metadata
    old = metadata.brokers[1].open()
    old.used = True
    assert metadata.register(1, "broker1", 9092) is old
    new = metadata.register(1, "broker1", 9093)
    assert (new.id, new.opened, metadata.brokers[1]) == (1, False, new)
    assert stage.client.out == [CloseConnection(old.address)]


def test_the_epoch_of_a_re_created_topic_may_be_lower() -> None:
    metadata = ClientStage().client.metadata
    metadata.update(metadata_of(2, epoch=5), everything=True)
    later = metadata_of(1, epoch=4)
    later.topics[0].topic_id = UUID(int=8)
    metadata.update(later, everything=True)
    leader = metadata.leader("t", 0)
    assert not isinstance(leader, errors.GoError)
    assert (leader[0].id, leader[1]) == (1, 4)


def test_a_partition_without_a_leader_is_kept_and_the_refresh_repeated() -> None:
    metadata = ClientStage().client.metadata
    assert metadata.update(metadata_of(1, -1), everything=True) == (True, {"t": errors.LEADER_NOT_AVAILABLE})
    assert metadata.partitions("t") == [0, 1]
    assert (metadata.is_readable("t", 0), metadata.is_readable("t", 1)) == (True, False)
    assert metadata.leader("t", 1) == errors.LEADER_NOT_AVAILABLE


def test_a_topic_without_a_leader_keeps_its_partitions_and_another_error_removes_the_topic() -> None:
    metadata = ClientStage().client.metadata
    assert metadata.update(metadata_of(1, code=5), everything=False)[0]
    assert metadata.partitions("t") == [0]
    assert metadata.update(metadata_of(1, code=29), everything=False) == (False, {"t": errors.kafka(29)})
    assert metadata.partitions("t") == []


def test_a_refresh_is_repeated_every_250_ms_up_to_three_times() -> None:
    stage = refresh("t")
    for count in (1, 2, 3):
        stage.answer(metadata_of(code=3))
        stage.wait(249)
        assert (len(topics_in(stage)), stage.signals) == (count, [])
        stage.wait(1)
    stage.answer(metadata_of(code=3))
    assert stage.signals == [("metadata_refreshed", errors.UNKNOWN_TOPIC)]
    assert topics_in(stage) == [["t"]] * 4


def test_a_refresh_ends_with_its_error_if_the_metadata_was_updated_during_the_backoff() -> None:
    stage = refresh("t")
    stage.answer(metadata_of(code=3))
    stage.wait(100)
    stage.client.metadata.updated_at = stage.client.now
    stage.wait(150)
    assert stage.signals == [("metadata_refreshed", errors.UNKNOWN_TOPIC)]
    assert len(topics_in(stage)) == 1


def test_a_refresh_without_a_reachable_broker_starts_again_with_the_bootstrap_addresses() -> None:
    stage = refresh("t", connected=False, extra={"Metadata.Retry.Max": 1})
    for number in range(4):
        if number == 2:
            stage.wait(250)
        stage.fail(f"failure {number}")
    ((_, error),) = stage.signals
    assert error.text.endswith("talk to: failure 2\nfailure 3")
    assert len(topics_in(stage)) == 4


def test_a_response_without_brokers_removes_the_broker_that_sent_it() -> None:
    stage = refresh("t")
    answer = metadata_of(1)
    answer.brokers = []
    stage.answer(answer)
    assert len(stage.client.metadata.brokers) == 1
    assert len(topics_in(stage)) == 2


def test_a_refresh_serves_the_routines_whose_topics_it_covers_and_the_others_share_the_next() -> None:
    stage = refresh("t", "u")
    metadata, caller = stage.client.metadata, stage.caller
    for topics in (("t",), ("v",), ("w",), ("u", "t")):
        stage.start(lambda topics=topics: metadata.request_refresh(caller, topics))  # type: ignore[misc]
    assert topics_in(stage) == [["t", "u"]]
    stage.answer(metadata_of(1))
    assert len(stage.signals) == 3
    assert topics_in(stage) == [["t", "u"], ["v", "w"]]
    stage.answer(metadata_of(1, topic="v"))
    assert len(stage.signals) == 5


def test_a_routine_gets_only_the_errors_of_its_topics() -> None:
    stage = refresh("t", "u")
    stage.start(lambda: stage.client.metadata.request_refresh(stage.caller, ("u",)))
    stage.answer(metadata_of(code=29))
    assert stage.signals == [
        ("metadata_refreshed", errors.kafka(29)),
        ("metadata_refreshed", None),
    ]


def test_an_updater_without_tracked_topics_waits_for_its_next_tick() -> None:
    stage = ClientStage(connected=False, metadata_ms=1_000, extra={"Metadata.Full": False})
    stage.start(stage.client.start_updater)
    stage.wait(1_500)
    assert topics_in(stage) == []
    stage.client.metadata.update(metadata_of(1), everything=False)
    stage.wait(500)
    assert topics_in(stage) == [["t"]]
    stage.answer(metadata_of(1))
    stage.wait(1_000)
    assert topics_in(stage) == [["t"], ["t"]]


def test_an_updater_logs_its_error_and_continues() -> None:
    stage = ClientStage(metadata_ms=1_000)
    stage.start(stage.client.start_updater)
    stage.wait(1_000)
    stage.answer(metadata_of(code=29))
    logs = [action for action in stage.client.out if isinstance(action, Notify)]
    text = "background update: kafka server: The client is not authorized to access this topic"
    assert logs == [Notify("log", "Metadata", text)]
    stage.wait(1_000)
    assert topics_in(stage) == [None, None]


@pytest.mark.parametrize(("chance", "first"), [(0.0, 1), (0.49, 1), (0.5, 2), (0.99, 2)])
def test_the_locks_are_taken_from_a_random_broker_on(chance: float, first: int) -> None:
    stage = ClientStage(random=lambda: chance)
    candidates = [broker.id for broker in stage.client.metadata.candidates()]
    assert candidates == [first, first, 3 - first, first]
    assert stage.client.metadata.brokers[first].opened
    assert not stage.client.metadata.brokers[3 - first].opened


def test_a_single_broker_needs_no_choice() -> None:
    def draw() -> float:
        raise AssertionError

    stage = ClientStage()
    del stage.client.metadata.brokers[2]
    object.__setattr__(stage.client.settings, "random", draw)
    assert [broker.id for broker in stage.client.metadata.candidates()] == [1, 1, 1]


def test_bootstrap_addresses_are_restored_once() -> None:
    metadata = metadata_of_client()
    for _ in range(2):
        metadata.deregister(metadata.seeds[0])
    for _ in range(2):
        metadata.resurrect()
    assert [seed.address.host for seed in metadata.seeds] == ["one", "two"]
