"""Mutants of document 001: detection of new partitions, their start offsets, and the programs of five
clients.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from consumer.engine.positions import offset_lookup
from kproto.models import kafka_go, sarama, sarama_cluster
from kproto.models.kafka_go import generation
from kproto.models.kafka_go import state as of_kafka_go
from kproto.models.librdkafka import conf, metadata
from kproto.models.librdkafka.state import LibrdkafkaState
from kproto.models.sarama import consumer_group_close
from kproto.models.sarama.consumer_group_session import GroupSession
from kproto.models.sarama.offset_manager import PartitionOffset
from kproto.models.sarama_cluster import balancer
from kproto.models.sarama_cluster.consumer import ClusterConsumer
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

of_sarama = import_module("kproto.models.sarama.config")  # the package has a function of that name
_mark, _divide, _start = PartitionOffset.mark, balancer.assign_partitions, kafka_go.start


def _at_the_end(finder: Any, state: Any, *, others_committed: bool) -> None:
    reason = "no committed offset: latest"
    state.await_reset(offset_lookup.OffsetReset(finder._timestamp("latest"), reason, False))


def _more_partitions(consumer: Any) -> bool:
    held = [partition.topic for partition in consumer.partitions]
    return any(len(consumer.client.metadata.partitions(topic)) > held.count(topic) for topic in held)


def _by_turns(strategy: str, *arguments: Any) -> Any:
    return _divide("roundrobin", *arguments)


def _watches(config: Any) -> Any:
    return _start(replace(config, watch=True))


def _names_only(handlers: Any, state: Any, event: Any, now: int, out: Any) -> None:
    state.consumer.subscribe(event.topics)


BLIND = Mutant("a leader that doesn't look at partitions", GroupSession, "watch_partitions", nothing)
NOT_NEW = Mutant(
    "a new partition is one like the others", offset_lookup.OffsetLookup, "_without_commit", _at_the_end
)
SEES = Mutant("a watch for partitions, too", ClusterConsumer, "new_topics", _more_partitions)
WATCHES = Mutant("kafka-go's watcher is on", kafka_go, "start", _watches)
NOT_THE_NEXT = Mutant(
    "a mark of the last", PartitionOffset, "mark", lambda managed, at, *_: _mark(managed, at - 1)
)

MUTANTS: Table = {
    "S1-1": WATCHES,
    "S1-2": BLIND,
    "S1-3": BLIND,
    "S1-4": BLIND,
    "S1-5": Mutant("Close without LeaveGroup", consumer_group_close, "leave", consumer_group_close.close),
    "S1-6": NOT_THE_NEXT,
    "S1-7": Mutant("a Version that means nothing", sarama, "versions_of", lambda kafka: sarama.VERSIONS),
    "S1-8": Mutant("a pause that is not taken", sarama.SaramaHandlers, "on_pause", nothing),
    "S1-9": SEES,
    "S1-10": SEES,
    "S1-11": Mutant("round robin, whatever is said", balancer, "assign_partitions", _by_turns),
    "S1-12": Mutant("no notifications", ClusterConsumer, "notify", nothing),
    "S1-13": NOT_THE_NEXT,
    "S1-14": Mutant(
        "a watcher that sees nothing", generation, "_on_watcher_response", lambda watcher, answer: False
    ),
    "S1-15": Mutant("a queue without a bound", of_kafka_go, "_number", lambda config, name, default: 100_000),
    "S1-16": Mutant("LastOffset that means the first", of_kafka_go, "LAST_OFFSET", of_kafka_go.FIRST_OFFSET),
    "S1-17": Mutant("metadata that changes nothing", metadata, "metadata_changed", nothing),
    "S1-18": Mutant("ends that nobody is told", LibrdkafkaState, "partition_eof", False),
    "S1-19": Mutant("another name of another property", conf.ALIASES, "sasl.mechanism", "sasl.username"),
    "S1-20": Mutant("latest means the oldest", of_sarama, "NEWEST", of_sarama.OLDEST),
    "S1-21": Mutant("earliest means the newest", of_sarama, "OLDEST", of_sarama.NEWEST),
    "S1-22": NOT_NEW,
    "S1-23": NOT_NEW,
    "S1-24": Mutant("a second, whatever duration is said", offset_lookup, "duration_ms", lambda spec: 1_000),
    "S1-25": WATCHES,
    "S1-26": NOT_NEW,
    "S1-27": Mutant(
        "a whitelist that is not looked at", sarama_cluster.SaramaClusterHandlers, "on_subscribe", _names_only
    ),
}
