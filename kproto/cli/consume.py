"""`kproto consume`: print the records of topics."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DecodeError, KprotoError, MissingExtra
from ..printable import escape_unprintable
from .arguments import Subparsers, parse_digits, positive, topic_partitions
from .connection import add_connection, client_options
from .record_formats import add_formats, format_value, json_value
from .schema_formats import decoders
from .tables import cell
from .watch import interrupted_by_signals

if TYPE_CHECKING:
    from collections.abc import Generator

    from consumer import Consumer, ConsumerRecord, TopicPartition

_FIELDS = ("timestamp", "partition", "offset", "headers", "key", "value")


def add(commands: Subparsers) -> None:
    consume = commands.add_parser(
        "consume",
        help="print the records of topics",
        description="Print the records of topics, one per line: first those that are there, up to the end of "
        "each partition. Without --group, no group is joined and nothing is committed.",
        epilog="Example: kproto consume flights --from 2026-11-28T09:30:00 --print offset,key,value "
        "--bootstrap localhost:9092",
    )
    consume.add_argument(
        "topics", nargs="+", metavar="TOPIC[:P,P]", help="a topic, or some of its partitions"
    )
    consume.add_argument(
        "--group", metavar="GROUP", help="read as a member of this group, and commit what was printed"
    )
    consume.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="PLACE",
        help="earliest (the default), latest, an offset, -N for the last N records of each partition, or a "
        "time such as 2026-11-28T09:30:00; with --group, earliest or latest, for partitions without a commit",
    )
    consume.add_argument(
        "--to", metavar="PLACE", help="stop before this offset or time; default: the end at the start"
    )
    consume.add_argument("--follow", action="store_true", help="wait for further records until Ctrl-C")
    consume.add_argument("--count", type=positive, metavar="N", help="stop after N records")
    consume.add_argument(
        "--print",
        dest="fields",
        default="value",
        metavar="FIELDS",
        help=f"any of {', '.join(_FIELDS)}, in the order of kafka-console-consumer; default: value",
    )
    add_formats(consume)
    consume.add_argument(
        "--messages",
        action="store_true",
        help="print the messages in the keys and values of a topic that Kafka writes, such as "
        "__consumer_offsets, as JSON lines",
    )
    consume.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="with read_committed, records of aborted and open transactions are not printed",
    )
    consume.add_argument(
        "--skip-invalid",
        action="store_true",
        help="report keys and values that are not in their format, and continue after them",
    )
    add_connection(consume)
    consume.set_defaults(run=_consume)


def _consume(options: argparse.Namespace) -> int:
    from consumer import Consumer

    fields = _checked_fields(options)
    config = _consumer_config(options)
    options.decoders = decoders(options)
    invalid_records = 0
    # SIGTERM closes the consumer as Ctrl-C does, so that a member leaves its group.
    with interrupted_by_signals(), Consumer(options.bootstrap, **config) as consumer:
        read = _group_records if options.group else _partition_records
        records = read(consumer, options)
        # `_group_records` applies --count itself. It commits a record only when the next one is requested, so
        # an `islice` would leave the last record uncommitted.
        with closing(records):
            for record in islice(records, None if options.group else options.count):
                try:
                    _print_record(record, fields, options)
                except _InvalidPart as error:
                    if not options.skip_invalid:
                        raise
                    invalid_records += 1
                    print(f"kproto consume: {error}", file=sys.stderr)
    return 1 if invalid_records else 0


def _checked_fields(options: argparse.Namespace) -> list[str]:
    """Return the fields to print. Raises ConfigError for options that cannot be combined."""
    fields: list[str] = options.fields.split(",")
    if unknown := [field for field in fields if field not in _FIELDS]:
        raise ConfigError("--print", unknown[0], f"allowed: {', '.join(_FIELDS)}")
    if options.messages and (unknown := [topic for topic in options.topics if not _is_internal(topic)]):
        from ..messages.index import RECORDS_OF

        raise ConfigError("--messages", unknown[0], f"allowed only for {', '.join(RECORDS_OF)}")
    if options.follow and options.to is not None:
        raise ConfigError("--follow", "True", "allowed only without --to")
    return fields


def _consumer_config(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the consumer. Raises ConfigError for a range of offsets with --group."""
    config = client_options(options, default_api_timeout_ms=int(options.timeout * 1_000))
    config |= {"isolation_level": options.isolation, "auto_offset_reset": "earliest"}
    if options.group is not None:
        if options.to is not None or options.start not in ("earliest", "latest"):
            allowed = "allowed with --group: --from earliest or --from latest, and not --to"
            raise ConfigError("--group", options.group, allowed)
        config |= {
            "group_id": options.group,
            "auto_offset_reset": options.start,
            "enable_auto_commit": False,
        }
    return config


class _InvalidPart(KprotoError):
    """Raised if the key or value of a record is not in the format that the options select."""


def _is_internal(word: str) -> bool:
    """Return whether an argument TOPIC[:P,P] names an internal topic of Kafka."""
    from ..messages.index import RECORDS_OF

    return word.partition(":")[0] in RECORDS_OF


def _group_records(consumer: Consumer, options: argparse.Namespace) -> Generator[ConsumerRecord]:
    """Yield records as a member of a group, and commit the offsets of the printed records.

    A record counts as printed when the caller requests the next record. Without `--follow`, the iteration
    ends when the member's partitions have no further records.
    """
    if any(":" in topic for topic in options.topics):
        raise ConfigError("--group", options.group, "allowed only for whole topics")
    consumer.subscribe(options.topics)
    count = 0
    while count != options.count:
        max_records = None if options.count is None else min(500, options.count - count)
        records = consumer.poll(1.0, max_records)
        printed: dict[TopicPartition, int] = {}
        try:
            for record in records:
                yield record
                count += 1
                printed[record.topic_partition] = record.offset + 1
        # The caller has closed the generator, for example because it failed to print a record.
        except GeneratorExit:
            if printed:
                consumer.commit(printed)
            raise
        if records:
            sys.stdout.flush()
            consumer.commit()
        elif not options.follow and consumer.assignment() and _is_at_the_end(consumer):
            return


def _is_at_the_end(consumer: Consumer) -> bool:
    """Return whether the positions in all assigned partitions are at the end of the log."""
    owned = consumer.assignment()
    ends = consumer.list_offsets(dict.fromkeys(owned, "latest"))
    return all(consumer.position(partition) >= (ends[partition].offset or 0) for partition in owned)


def _partition_records(consumer: Consumer, options: argparse.Namespace) -> Generator[ConsumerRecord]:
    """Yield the records between `--from` and `--to`, without a group."""
    partitions = [
        partition
        for word in options.topics
        for partition in topic_partitions("TOPIC", word, consumer.partitions_for)
    ]
    start_offsets = _resolved_offsets(consumer, "--from", options.start, partitions)
    stop_offsets = None
    if not options.follow:
        stop_offsets = _resolved_offsets(consumer, "--to", options.to or "latest", partitions)
    consumer.assign(start_offsets)
    while stop_offsets is None or any(
        consumer.position(partition) < stop_offsets[partition] for partition in partitions
    ):
        for record in consumer.poll(1.0):
            if stop_offsets is None or record.offset < stop_offsets[record.topic_partition]:
                yield record
        sys.stdout.flush()


def _resolved_offsets(
    consumer: Consumer, option: str, text: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Map each partition to the offset that the value of `--from` or `--to` denotes for it.

    An offset outside the log is replaced by the log's start or end offset.
    """
    from .times import offset_time

    offset = parse_digits(text)
    last_records = parse_digits(text.removeprefix("-")) if text.startswith("-") else -1
    ends = consumer.list_offsets(dict.fromkeys(partitions, "latest"))
    if offset >= 0 or last_records >= 0:
        starts = consumer.list_offsets(dict.fromkeys(partitions, "earliest"))
        resolved: dict[TopicPartition, int] = {}
        for partition in partitions:
            first, end = starts[partition].offset or 0, ends[partition].offset or 0
            resolved[partition] = max(first, min(end, offset) if last_records < 0 else end - last_records)
        return resolved
    listed_offsets = consumer.list_offsets(dict.fromkeys(partitions, offset_time(option, text)))
    return {
        partition: (listed if listed.offset is not None else ends[partition]).offset or 0
        for partition, listed in listed_offsets.items()
    }


def _print_messages(record: ConsumerRecord) -> None:
    """Print the messages in a record of an internal topic as a JSON line."""
    from ..inspect.internal_records import decode_internal
    from ..messages.json_form import one_line

    shown: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    try:
        decoded = decode_internal(record.topic, record.key, record.value)
    except DecodeError as error:
        shown["error"] = str(error)
    else:
        for part, message in decoded._asdict().items():
            shown[part] = message and message.to_json()
    print(one_line(shown))


def _print_record(record: ConsumerRecord, fields: list[str], options: argparse.Namespace) -> None:
    """Print a record. Raises _InvalidPart if the key or value to print is not valid in its format."""
    if options.messages:
        _print_messages(record)
        return
    if options.json:
        from ..messages.json_form import one_line

        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "headers": [[name, json_value(value, "string", lossless=True)] for name, value in record.headers],
            "key": _part_value(record, "key", options),
            "value": _part_value(record, "value", options),
        }
        print(one_line(shown))
        return
    has_timestamp = record.timestamp_type != "NoTimestampType"
    headers = ",".join(
        f"{cell(name)}:{format_value(json_value(value, 'string'), 'string')}"
        for name, value in record.headers
    )
    texts = {
        "timestamp": f"{record.timestamp_type}:{record.timestamp}" if has_timestamp else "NO_TIMESTAMP",
        "partition": f"Partition:{record.partition}",
        "offset": f"Offset:{record.offset}",
        "headers": headers or "NO_HEADERS",
    }
    for part, format_name in (("key", options.key_format), ("value", options.value_format)):
        if part in fields:
            texts[part] = format_value(_part_value(record, part, options), format_name)
    print("\t".join(texts[field] for field in _FIELDS if field in fields))


def _part_value(record: ConsumerRecord, part: str, options: argparse.Namespace) -> Any:
    """Return the key or value of a record as a value for JSON: `part` is "key" or "value".

    Raises _InvalidPart if the bytes are not in the format that the options select. Raises RegistryFailed if
    the schema registry does not respond.
    """
    from consumer.schema_registry.registry import NoSuchSchema, RegistryFailed

    if part == "key":
        data, format_name = record.key, options.key_format
    else:
        data, format_name = record.value, options.value_format
    decode = options.decoders.get(part)
    try:
        if decode is not None and data is not None:
            return decode(record, data)
        return json_value(data, format_name, lossless=options.json)
    except (RegistryFailed, MissingExtra) as error:
        if not isinstance(error, NoSuchSchema):
            raise
        reason: Exception = error
    # The Avro, Protobuf and JSON Schema packages raise many kinds of exceptions for invalid bytes.
    except Exception as error:
        reason = error
    position = f"{record.topic_partition} @ {record.offset}"
    text = escape_unprintable(str(reason) or type(reason).__name__)
    raise _InvalidPart(f"{position}: the {part} is not in the format {format_name}: {text}") from None
