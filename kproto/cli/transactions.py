"""`kproto transactions`: list and describe transactions, find hanging ones, and abort them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, parse_digits, positive_duration
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    exit_code,
    say_not_executed,
    succeeded,
)
from .tables import print_json, print_table

if TYPE_CHECKING:
    from consumer import Admin, TopicPartition
    from consumer.engine.admin.transactions import ProducerState

_PRODUCER_COLUMNS = (
    ("ProducerId", 10),
    ("ProducerEpoch", 13),
    ("LatestCoordinatorEpoch", 22),
    ("LastSequence", 12),
    ("LastTimestamp", 13),
    ("CurrentTransactionStartOffset", 29),
)
# In JSON the last column is called durationMin.
_HANGING_COLUMNS = (
    ("Topic", 5),
    ("Partition", 9),
    ("ProducerId", 10),
    ("ProducerEpoch", 13),
    ("CoordinatorEpoch", 16),
    ("StartOffset", 11),
    ("LastTimestamp", 13),
    ("Duration(min)", 13),
)


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "transactions",
        help_text="list, describe and abort transactions",
        description="Show the transactions of a cluster, and abort hanging ones. The columns are those of "
        "kafka-transactions.",
    )
    add_verb(verbs, "list", _list, "print each transactional id with its state")
    describe = add_verb(verbs, "describe", _describe, "print the state and the partitions of transactions")
    describe.add_argument("ids", nargs="+", metavar="TRANSACTIONAL_ID")
    producers = add_verb(verbs, "producers", _print_producers, "print the producers of a partition")
    _add_partition(producers)
    hanging = add_verb(
        verbs,
        "find-hanging",
        _find_hanging,
        "print open transactions that their coordinator does not know",
        description="Print transactions that are open in a partition for longer than --older-than, although "
        "their coordinator does not know them. They stop read_committed consumers.",
    )
    hanging.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    hanging.add_argument(
        "--older-than",
        type=positive_duration,
        default=900_000,
        metavar="TIME",
        help="the longest transaction timeout of the cluster; default: 15m",
    )
    abort = add_verb(verbs, "abort", _abort, "abort a hanging transaction in a partition")
    _add_partition(abort)
    abort.add_argument(
        "--start-offset", required=True, type=_offset, metavar="N", help="the first offset of the transaction"
    )
    add_execute(abort, "write the abort marker")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("partition", metavar="TOPIC:P", help="such as flights:0")


def _offset(text: str) -> int:
    if parse_digits(text) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset")
    return int(text)


def _parse_partition(text: str) -> TopicPartition:
    from consumer import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or parse_digits(number) < 0:
        raise ConfigError("TOPIC:P", text, "allowed: a topic and one partition, such as flights:0")
    return TopicPartition(topic, int(number))


def _print_rows(
    columns: Iterable[tuple[str, int]], rows: Iterable[tuple[object, ...]], *, as_json: bool
) -> None:
    """Print a table. If `as_json`, print a JSON object per row, with the titles in camel case."""
    titles = list(columns)
    if as_json:
        names = [title[0].lower() + title[1:].replace("(min)", "Min") for title, _ in titles]
        print_json(dict(zip(names, row, strict=True)) for row in rows)
    else:
        print_table(titles, rows)


def _list(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        by_node = succeeded(admin.list_transactions, failures)
    rows = [
        (listing.transactional_id, node, listing.producer_id, listing.state)
        for node, listings in sorted(by_node.items())
        for listing in listings
    ]
    columns = [("TransactionalId", 15), ("Coordinator", 11), ("ProducerId", 10), ("TransactionState", 16)]
    _print_rows(columns, rows, as_json=options.json)
    return exit_code("transactions list", failures)


def _describe(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        described = succeeded(lambda: admin.describe_transactions(options.ids), failures)
    now = time.time_ns() // 1_000_000
    rows = [
        (
            transaction.coordinator_id,
            name,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state,
            transaction.timeout_ms,
            transaction.start_time_ms,
            None if transaction.start_time_ms is None else now - transaction.start_time_ms,
            ",".join(str(partition) for partition in sorted(transaction.partitions)),
        )
        for name, transaction in described.items()
    ]
    titles = (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    )
    _print_rows([(title, len(title)) for title in titles.split()], rows, as_json=options.json)
    return exit_code("transactions describe", failures)


def _producer_row(state: ProducerState, *, as_json: bool) -> tuple[object, ...]:
    """Return a producer's columns; as in Kafka's tool, an unknown epoch is -1 and an unknown offset None."""
    epoch, start_offset = state.coordinator_epoch, state.current_transaction_start_offset
    return (
        state.producer_id,
        state.producer_epoch,
        epoch if epoch is not None or as_json else -1,
        state.last_sequence,
        state.last_timestamp,
        start_offset if start_offset is not None or as_json else "None",
    )


def _print_producers(options: argparse.Namespace) -> int:
    partition = _parse_partition(options.partition)
    with admin_client(options) as admin:
        states = admin.describe_producers([partition])[partition]
    rows = [_producer_row(state, as_json=options.json) for state in states]
    _print_rows(_PRODUCER_COLUMNS, rows, as_json=options.json)
    return 0


def _find_hanging(options: argparse.Namespace) -> int:
    """Print hanging transactions, which are open in a log but unknown to their coordinator.

    Transactions with a record in the last `--older-than` ms are not checked.
    """
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        topics = options.topics or sorted(admin.topics())
        partitions = [partition for topic in topics for partition in admin.partitions(topic)]
        producers = succeeded(lambda: admin.describe_producers(partitions), failures)
        now = time.time_ns() // 1_000_000
        suspects = _open_since(producers, now - options.older_than)
        known = _known_partitions(admin, {state.producer_id for _, state in suspects})
    rows = _hanging_rows(suspects, known, now)
    _print_rows(_HANGING_COLUMNS, rows, as_json=options.json)
    return exit_code("transactions find-hanging", failures)


def _open_since(
    producers: Mapping[TopicPartition, Sequence[ProducerState]], before_ms: int
) -> list[tuple[TopicPartition, ProducerState]]:
    """Return the producers that have an open transaction and wrote their last record before `before_ms`."""
    return [
        (partition, state)
        for partition, states in sorted(producers.items())
        for state in sorted(states, key=lambda state: state.producer_id)
        if state.current_transaction_start_offset is not None and state.last_timestamp < before_ms
    ]


def _hanging_rows(
    suspects: Iterable[tuple[TopicPartition, ProducerState]],
    known: Mapping[int, frozenset[TopicPartition]],
    now: int,
) -> list[tuple[object, ...]]:
    """Return a row for each of `suspects` whose partition is not in the producer's transaction.

    `known` maps producer ids to the partitions of their transactions, as coordinators describe them.
    """
    return [
        (
            partition.topic,
            partition.partition,
            state.producer_id,
            state.producer_epoch,
            state.coordinator_epoch,
            state.current_transaction_start_offset,
            state.last_timestamp,
            (now - state.last_timestamp) // 60_000,
        )
        for partition, state in suspects
        if partition not in known.get(state.producer_id, ())
    ]


def _known_partitions(admin: Admin, producer_ids: set[int]) -> dict[int, frozenset[TopicPartition]]:
    """Map producer ids to the partitions of their transactions, as the coordinators report them."""
    if not producer_ids:
        return {}
    listed: Mapping[int, Any] = admin.list_transactions(producer_ids=producer_ids)
    ids = [listing.transactional_id for listings in listed.values() for listing in listings]
    described = admin.describe_transactions(ids) if ids else {}
    return {
        transaction.producer_id: transaction.partitions
        for transaction in described.values()
        if transaction.start_time_ms is not None
    }


def _abort(options: argparse.Namespace) -> int:
    """Print the producer of the transaction; with --execute, abort the transaction."""
    partition = _parse_partition(options.partition)
    with admin_client(options) as admin:
        states = admin.describe_producers([partition])[partition]
        state = next(
            (state for state in states if state.current_transaction_start_offset == options.start_offset),
            None,
        )
        if state is None:
            detail = f"no open transaction in {partition} begins at offset {options.start_offset}"
            return exit_code("transactions abort", [KprotoError(detail)])
        _print_rows(_PRODUCER_COLUMNS, [_producer_row(state, as_json=options.json)], as_json=options.json)
        if not options.execute:
            return say_not_executed("no transaction was aborted")
        admin.abort_transaction(
            partition,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            coordinator_epoch=state.coordinator_epoch or 0,
        )
    return 0
