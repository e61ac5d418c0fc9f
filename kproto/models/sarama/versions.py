"""The request versions that sarama's Config.Version selects, taken from the request files of v1.61.1.

With the option "Release" in `extra` set to "1.38.1", the versions are from Shopify/sarama 1.38.1
(`SINCE_1_38_1`).

A request has the version that Config.Version selects, even if the broker supports newer versions. If the
broker supports only older versions, the request has the newest of them.

Config.Version is the version of the oldest broker of the *cluster*. A low value also works with a new broker
that still supports the old requests. Kafka 4.0 dropped Fetch v0 to v3 and other request versions from before
0.11 (KIP-896).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...errors import ConfigError
from ...messages.fetch import FetchRequest
from ...messages.find_coordinator import FindCoordinatorRequest
from ...messages.heartbeat import HeartbeatRequest
from ...messages.join_group import JoinGroupRequest
from ...messages.leave_group import LeaveGroupRequest
from ...messages.list_offsets import ListOffsetsRequest
from ...messages.metadata import MetadataRequest
from ...messages.offset_commit import OffsetCommitRequest
from ...messages.offset_fetch import OffsetFetchRequest
from ...messages.sync_group import SyncGroupRequest
from ...wire.message import Message

KafkaVersion = tuple[int, ...]
# sarama.MaxVersion, the default of the model.
MAX_VERSION: Final[KafkaVersion] = (4, 1, 0, 0)
GROUPS_SINCE: Final[KafkaVersion] = (0, 10, 2, 0)
INSTANCES_SINCE: Final[KafkaVersion] = (2, 3, 0, 0)

# Request -> oldest Kafka release -> request version. The versions that only a Config.Version before
# `GROUPS_SINCE` would select are left out.
SINCE: Final[Mapping[type[Message], Mapping[KafkaVersion, int]]] = {
    FetchRequest: {
        (0, 10, 1): 3,
        (0, 11): 5,
        (1, 0): 6,
        (1, 1): 7,
        (2, 0): 8,
        (2, 1): 10,
        (2, 3): 11,
        (2, 7): 12,
    },
    ListOffsetsRequest: {(0, 10, 1): 1, (0, 11): 2, (2, 0): 3, (2, 1): 4, (2, 2): 5, (2, 8): 6},
    MetadataRequest: {
        (0, 10, 1): 2,
        (0, 11): 4,
        (1, 0): 5,
        (2, 0): 6,
        (2, 1): 7,
        (2, 3): 8,
        (2, 4): 9,
        (2, 8): 11,
    },
    OffsetCommitRequest: {(0, 9): 2, (0, 11): 3, (2, 0): 4, (2, 1): 6, (2, 3): 7, (2, 4): 8},
    OffsetFetchRequest: {
        (0, 10, 2): 2,
        (0, 11): 3,
        (2, 0): 4,
        (2, 1): 5,
        (2, 4): 6,
        (2, 5): 7,
        (3, 0): 8,
    },
    FindCoordinatorRequest: {(0, 8): 0, (0, 11): 1, (2, 0): 2, (2, 4): 3},
    JoinGroupRequest: {
        (0, 10, 1): 1,
        (0, 11): 2,
        (2, 0): 3,
        (2, 2): 4,
        (2, 3): 5,
        (2, 4): 6,
        (2, 5): 7,
        (3, 1): 8,
    },
    HeartbeatRequest: {(0, 8): 0, (0, 11): 1, (2, 0): 2, (2, 3): 3, (2, 4): 4},
    LeaveGroupRequest: {(0, 9): 0, (0, 11): 1, (2, 0): 2, (2, 4): 4, (3, 2): 5},
    SyncGroupRequest: {(0, 9): 0, (0, 11): 1, (2, 0): 2, (2, 3): 3, (2, 4): 4, (2, 5): 5},
}

# The same table for Shopify/sarama 1.38.1, for members without an instance id. It has no entry for
# OffsetCommit, whose version depends on Offsets.Retention (constructRequest in offset_manager.go).
SINCE_1_38_1: Final[Mapping[type[Message], Mapping[KafkaVersion, int]]] = {
    FetchRequest: {(0, 10, 1): 3, (0, 11): 4, (1, 1): 7, (2, 1): 10, (2, 3): 11},
    ListOffsetsRequest: {(0, 10, 1): 1},
    MetadataRequest: {(0, 10, 0): 1, (1, 0): 5, (2, 0): 6, (2, 1): 7},
    OffsetFetchRequest: {(0, 8): 1},
    FindCoordinatorRequest: {(0, 8): 0, (0, 11): 1},
    JoinGroupRequest: {(0, 10, 1): 1},
    HeartbeatRequest: {(0, 8): 0},
    LeaveGroupRequest: {(0, 9): 0},
    SyncGroupRequest: {(0, 9): 0, (2, 3): 3},
}
# The releases of sarama whose request versions the model knows.
RELEASES: Final = ("1.38.1", "1.61.1")

# Oldest Kafka release -> version of the subscription in JoinGroup. Version 1 adds owned partitions, version 2
# the generation.
SUBSCRIPTION_SINCE: Final[Mapping[KafkaVersion, int]] = {(0, 8): 0, (2, 4): 1, (3, 2): 2}


def api_key(request: type[Message]) -> int:
    """Return the API key of a request."""
    number = request.__api_key__
    assert number is not None
    return number


def parse_version(text: str) -> KafkaVersion:
    """Parse a version such as "0.10.2.1" or "2.0.0" (ParseKafkaVersion).

    Raises ConfigError for a string that is not a version, and for a version without consumer groups.
    """
    parts = text.split(".")
    if not all(part.isdigit() for part in parts) or not 3 <= len(parts) <= 4:
        raise ConfigError("Version", text, 'allowed: a version of Kafka such as "0.10.2.1" or "2.8.0"')
    version = tuple(int(part) for part in parts)
    if version < GROUPS_SINCE[: len(version)]:
        raise ConfigError(
            "Version", text, "allowed: 0.10.2.0 or later, because sarama's consumer groups require it"
        )
    return version


def newest_version(since: Mapping[KafkaVersion, int], kafka_version: KafkaVersion) -> int:
    """Return the request version in the table's newest entry that is not newer than `kafka_version`."""
    return max(version for oldest_release, version in since.items() if oldest_release <= kafka_version)


def versions_of(
    kafka_version: KafkaVersion, release: str = RELEASES[-1], offsets_retention: int = 0
) -> dict[int, int]:
    """Map each API key to the request version that this release of sarama sends with this Config.Version.

    `offsets_retention` is Offsets.Retention in ms.
    """
    if release == RELEASES[-1]:
        return {api_key(request): newest_version(since, kafka_version) for request, since in SINCE.items()}
    versions = {
        api_key(request): newest_version(since, kafka_version) for request, since in SINCE_1_38_1.items()
    }
    return {**versions, api_key(OffsetCommitRequest): 2 if offsets_retention else 1}


# API key -> the request version that sarama 1.61.1 sends with Version = MaxVersion.
VERSIONS: dict[int, int] = versions_of(MAX_VERSION)
