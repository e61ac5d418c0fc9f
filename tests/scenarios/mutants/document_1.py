"""Mutants for the scenarios of lesson 001 (docs/lessons/001-new-partitions.md).

The mutants change how five clients detect new partitions, at which offset they begin to read them, and some
of their other behaviour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from consumer.engine.positions import offset_lookup
from kproto.models import kafka_go, sarama, sarama_cluster
from kproto.models.kafka_go import generation
from kproto.models.kafka_go import state as kafka_go_state
from kproto.models.librdkafka import conf, metadata
from kproto.models.librdkafka.state import LibrdkafkaState
from kproto.models.sarama import config as sarama_config
from kproto.models.sarama import consumer_group_close
from kproto.models.sarama.consumer_group_session import GroupSession
from kproto.models.sarama.offset_manager import PartitionOffset
from kproto.models.sarama_cluster import balancer
from kproto.models.sarama_cluster.consumer import ClusterConsumer
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_mark, _assign_partitions, _start = PartitionOffset.mark, balancer.assign_partitions, kafka_go.start
_metadata_changed = metadata.metadata_changed


def _start_at_latest(finder: Any, state: Any, *, others_committed: bool) -> None:
    reason = "no committed offset: latest"
    state.await_reset(offset_lookup.OffsetReset(finder._reset_timestamp("latest"), reason, False))


def _has_more_partitions(consumer: Any) -> bool:
    held = [partition.topic for partition in consumer.partitions]
    return any(len(consumer.client.metadata.partitions(topic)) > held.count(topic) for topic in held)


def _assign_round_robin(strategy: str, *arguments: Any) -> Any:
    return _assign_partitions("roundrobin", *arguments)


def _start_with_watcher(config: Any) -> Any:
    return _start(replace(config, watch=True))


def _subscribe_to_names(handlers: Any, state: Any, event: Any, now: int, out: Any) -> None:
    state.consumer.subscribe(event.topics)


def _ignore_growth(state: LibrdkafkaState, out: Any) -> None:
    if not state.assignment:
        _metadata_changed(state, out)


LEADER_IGNORES_PARTITIONS = Mutant(
    "the leader does not watch partition counts", GroupSession, "watch_partitions", nothing
)
NEW_PARTITION_AT_LATEST = Mutant(
    "a new partition starts at the latest offset",
    offset_lookup.OffsetLookup,
    "_reset_without_commit",
    _start_at_latest,
)
DETECTS_PARTITIONS = Mutant(
    "new partitions are detected, too", ClusterConsumer, "has_new_topics", _has_more_partitions
)
WATCHER_ENABLED = Mutant("kafka-go's partition watcher is on", kafka_go, "start", _start_with_watcher)
MARKS_LAST_OFFSET = Mutant(
    "a mark stores the last offset, not the next",
    PartitionOffset,
    "mark",
    lambda managed, at, *_: _mark(managed, at - 1),
)

MUTANTS: Table = {
    "S1-1": WATCHER_ENABLED,
    "S1-2": LEADER_IGNORES_PARTITIONS,
    "S1-3": LEADER_IGNORES_PARTITIONS,
    "S1-4": LEADER_IGNORES_PARTITIONS,
    "S1-5": Mutant("Close without LeaveGroup", consumer_group_close, "leave", consumer_group_close.close),
    "S1-6": MARKS_LAST_OFFSET,
    "S1-7": Mutant("Version has no effect", sarama, "versions_of", lambda *arguments: sarama.VERSIONS),
    "S1-8": Mutant("pause does nothing", sarama.SaramaHandlers, "on_pause", nothing),
    "S1-9": DETECTS_PARTITIONS,
    "S1-10": DETECTS_PARTITIONS,
    "S1-11": Mutant("every strategy is round robin", balancer, "assign_partitions", _assign_round_robin),
    "S1-12": Mutant("no notifications", ClusterConsumer, "notify", nothing),
    "S1-13": MARKS_LAST_OFFSET,
    "S1-14": Mutant(
        "the watcher detects nothing", generation, "_on_watcher_response", lambda watcher, answer: False
    ),
    "S1-15": Mutant(
        "the queue is unbounded", kafka_go_state, "_positive_option", lambda config, name, default: 100_000
    ),
    "S1-16": Mutant("LastOffset means the first", kafka_go_state, "LAST_OFFSET", kafka_go_state.FIRST_OFFSET),
    "S1-17": Mutant("new partitions start no rebalance", metadata, "metadata_changed", _ignore_growth),
    "S1-18": Mutant("the end of a partition is not reported", LibrdkafkaState, "partition_eof", False),
    "S1-19": Mutant("an alias names the wrong property", conf.ALIASES, "sasl.mechanism", "sasl.username"),
    "S1-20": Mutant("latest means the oldest", sarama_config, "NEWEST", sarama_config.OLDEST),
    "S1-21": Mutant("earliest means the newest", sarama_config, "OLDEST", sarama_config.NEWEST),
    "S1-22": NEW_PARTITION_AT_LATEST,
    "S1-23": NEW_PARTITION_AT_LATEST,
    "S1-24": Mutant("every duration is one second", offset_lookup, "duration_ms", lambda spec: 1_000),
    "S1-25": WATCHER_ENABLED,
    "S1-26": NEW_PARTITION_AT_LATEST,
    "S1-27": Mutant(
        "the whitelist is ignored", sarama_cluster.SaramaClusterHandlers, "on_subscribe", _subscribe_to_names
    ),
}
