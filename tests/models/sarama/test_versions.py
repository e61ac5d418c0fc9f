"""Config.Version, a Kafka release, limits requests to the versions that this release supports."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.group.subscription import Subscription
from kproto.messages.join_group import JoinGroupRequest
from kproto.models import sarama
from kproto.models.contract import ModelConfig
from kproto.models.sarama.versions import SINCE, newest_version, parse_version, versions_of
from kproto.testing.world import World

FETCH, LIST, METADATA, COMMIT, OFFSETS, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 1, 2, 3, 8, 9, 10, 11, 12, 13, 14


def test_without_a_version_the_newest_requests_are_sent() -> None:
    # The original client sent these versions to Kafka 4.3.1.
    assert sarama.VERSIONS == {
        FETCH: 12,
        LIST: 6,
        METADATA: 11,
        COMMIT: 8,
        OFFSETS: 8,
        FIND: 3,
        JOIN: 8,
        HEARTBEAT: 4,
        LEAVE: 5,
        SYNC: 5,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.10.2.1", (3, 1, 2, 2, 2, 0, 1, 0, 0, 0)),
        ("0.11.0.2", (5, 2, 4, 3, 3, 1, 2, 1, 1, 1)),
        ("2.0.0", (8, 3, 6, 4, 4, 2, 3, 2, 2, 2)),
        ("2.4.0", (11, 5, 9, 8, 6, 3, 6, 4, 4, 4)),
    ],
)
def test_a_kafka_version_selects_the_request_versions(text: str, expected: tuple[int, ...]) -> None:
    assert tuple(versions_of(parse_version(text)).values()) == expected


@pytest.mark.parametrize("text", ["0.10.1.0", "0.9.0.1", "", "two", "2", "2.0.0.0.0", "V2_0_0_0"])
def test_invalid_versions_and_those_without_groups_raise_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="Version"):
        sarama.start(ModelConfig(client_id="a", group_id="g", extra={"Version": text}))


@pytest.mark.rule("R228")
@pytest.mark.parametrize(("text", "version"), [("0.11.0.0", 0), ("2.4.0", 1), ("3.1.0", 1), ("3.2.0", 2)])
def test_an_old_member_has_an_older_subscription_and_no_instance_id(text: str, version: int) -> None:
    world = World({"t": 1})
    a = world.join("a", sarama, topics=["t"], group_id="g", instance="one", extra={"Version": text})
    world.run(3_000)
    join = world.requests_of(a, JoinGroupRequest)[0]
    assert int.from_bytes(join.protocols[0].metadata[:2], "big") == version
    assert Subscription.decode(join.protocols[0].metadata).topics == ("t",)
    assert join.group_instance_id == ("one" if version else None)
    assert len(a.owned) == 1


def test_a_version_of_kafka_selects_the_requests_that_it_introduced() -> None:
    for since in SINCE.values():
        for first, version in since.items():
            assert newest_version(since, first) == version
            assert newest_version(since, (*first[:-1], first[-1] + 1)) >= version


@pytest.mark.parametrize(
    ("text", "retention", "expected"),
    [
        ("0.11.0.0", 0, (4, 1, 1, 1, 1, 0, 1, 0, 0, 1)),
        ("1.0.0", 60_000, (4, 1, 5, 1, 1, 0, 1, 0, 0, 2)),
        ("2.8.0", 0, (11, 1, 7, 1, 1, 0, 1, 0, 3, 1)),
    ],
)
def test_release_1_38_1_selects_older_requests(text: str, retention: int, expected: tuple[int, ...]) -> None:
    versions = versions_of(parse_version(text), "1.38.1", retention)
    apis = (FETCH, LIST, METADATA, OFFSETS, FIND, HEARTBEAT, JOIN, LEAVE, SYNC, COMMIT)
    assert tuple(versions[api] for api in apis) == expected
