"""Compare message codecs with kafka-python 3 and kio, message by message.

    python -m benchmarks.codec [--rounds 15] [--only Fetch,Metadata] [--source] [--chart FILE]

Every round runs all candidates in rotating order in one thread, and measures the CPU time of that thread.
Times are medians over the rounds, in microseconds. A ratio ("x") is computed for each round, and its median
is printed; above 1, kproto is faster. kproto encodes the bytes that all candidates decode. Each peer encodes
the message that it decoded itself, and must produce the same bytes. kio decodes in Rust and encodes in
Python. kafka-python generates code, as kproto does. `--source` prints kproto's generated code instead of
measuring it.

A goal is a speed relative to a peer. The geometric mean over all messages has to reach it, and one goal has
to be reached by every single message. All goals are reached, "decode x kio" (0.7) without a margin: four runs
gave 0.70, 0.71, 0.71 and 0.70 (Python 3.11, two busy cores). Messages with many single strings, such as
JoinGroupRequest, are decoded at 0.4 times the speed of kio's Rust. Large arrays are decoded as fast as by
kio.

A Metadata response creates 30,000 lists. Garbage collections that visit them count for the measured
candidate. The benchmark's own objects are excluded from collections.

experiments/README.md lists the rejected designs.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import linecache
import re
import statistics
import uuid
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from kproto.messages.fetch import FetchRequest, FetchResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.metadata import MetadataResponse
from kproto.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.wire import Array, Message, Primitive

from . import report

CASES: list[tuple[type[Message], list[int]]] = [
    (JoinGroupRequest, [9, 5]),
    (JoinGroupResponse, [9, 5]),
    (SyncGroupRequest, [5, 3]),
    (SyncGroupResponse, [5, 3]),
    (OffsetCommitRequest, [9, 3]),
    (OffsetCommitResponse, [9, 3]),
    (OffsetFetchRequest, [9, 3]),
    (OffsetFetchResponse, [9, 3]),
    (MetadataResponse, [13, 5]),
    (FetchRequest, [18, 11]),
    (FetchResponse, [18, 11]),
]
PEERS = ("kafka-python", "kio")

GOALS = {
    "decode x kafka-python": 2.5,
    "decode x kio": 0.7,
    "encode x kafka-python": 5.0,
    "encode x kafka-python, each": 3.0,
    "decode and encode x kio": 5.0,
}

# Sizes of the sample messages: elements of an array, bytes of a bytes field, or the content of a string. They
# describe a group of 100 members, 50 topics of 10 partitions, and a cluster of 1,000 topics. Fetch responses
# have no records. Optional fields are null or empty.
COUNTS: dict[str, int] = {
    "protocols": 2,
    "members": 100,
    "assignments": 100,
    "brokers": 10,
    "topics": 50,
    "responses": 50,
    "groups": 1,
    "partitions": 10,
    "partition_indexes": 10,
    "replica_nodes": 3,
    "isr_nodes": 3,
    "offline_replicas": 0,
    "forgotten_topics_data": 0,
    "node_endpoints": 0,
}
BYTES: dict[tuple[str, str], int] = {
    ("JoinGroupRequestProtocol", "metadata"): 200,
    ("JoinGroupResponseMember", "metadata"): 100,
    ("SyncGroupRequestAssignment", "assignment"): 200,
    ("SyncGroupResponse", "assignment"): 2000,
}
TEXTS: dict[str, str] = {
    "group_id": "analytics-flights-daily",
    "member_id": "consumer-{0:06d}-3c2ef0f4-91b5-4f02-a8d1-0c5a7f{0:06d}",
    "leader": "consumer-000000-3c2ef0f4-91b5-4f02-a8d1-0c5a7f000000",
    "protocol_type": "consumer",
    "protocol_name": "cooperative-sticky",
    "host": "broker-{0}.kafka.svc",
    "reason": "a member left it",
    "cluster_id": "Sr7mMzKSQ5WbVYYSC7rNXQ",
    "metadata": "",
    "committed_metadata": "",
    "rack_id": "",
}
# Nullable fields that the samples set, because real clients usually set them.
USUALLY_SET = {"protocol_type", "protocol_name", "name", "cluster_id", "reason", "topics"}


def sample(cls: type[Any], version: int, index: int = 0) -> Any:
    """Return a message like those of real clients and brokers, without tagged fields."""
    values: dict[str, Any] = {}
    for field in cls.__fields__:
        name, kind = field.name, field.kind
        if version not in field.versions or version in field.tagged:
            continue
        if version in field.nullable and name not in USUALLY_SET:
            values[name] = b"" if getattr(kind, "name", "") == "records" else None
        elif isinstance(kind, Array):
            count = 1000 if cls is MetadataResponse and name == "topics" else COUNTS[name]
            values[name] = [
                _sample_value(cls, name, kind.element, version, element) for element in range(count)
            ]
        else:
            values[name] = _sample_value(cls, name, kind, version, index)
    return cls(**values)


def _sample_value(cls: type[Any], name: str, kind: Any, version: int, index: int) -> Any:
    if not isinstance(kind, Primitive):
        return sample(kind, version, index)
    if kind.name == "string" and "Protocol" in cls.__name__:
        return ("cooperative-sticky", "range")[index]
    if kind.name == "string":
        return TEXTS.get(name, "flights.departures.{0:05d}").format(index)
    if kind.name == "bytes":
        return bytes(number * 7 + index & 0xFF for number in range(BYTES[cls.__name__, name]))
    if kind.name == "uuid":
        return uuid.UUID(int=index + 1 << 64 | 7)
    if kind.name in ("bool", "float64"):
        return kind.zero
    if name.endswith(("index", "id", "nodes", "partition", "partition_indexes")):
        return index
    return {"int8": 0, "int16": 0, "int32": 5 + index % 3, "int64": 1_700_000_000 + index * 977}[kind.name]


def kafka_python(cls: type[Message], version: int) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Return the decoder and the encoder of kafka-python for a message."""
    modules = (
        "consumer.group",
        "consumer.offsets",
        "consumer.fetch",
        "consumer.metadata",
        "metadata.metadata",
    )
    peer_class: Any = None
    for name in modules:
        try:
            module = importlib.import_module(f"kafka.protocol.{name}")
        except ImportError:
            continue
        peer_class = peer_class or getattr(module, cls.__name__, None)

    def decode(data: bytes) -> Any:
        return peer_class.decode(data, version=version)

    def encode(message: Any) -> bytes:
        encoded: bytes = message.encode(version=version)
        return encoded

    return decode, encode


def kio(cls: type[Message], version: int) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Return the decoder and the encoder of kio for a message."""
    from kio.serial import entity_reader, entity_writer

    api = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    folder, kind = api.rsplit("_", 1)
    peer_class = getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{kind}"), cls.__name__)
    read, write = entity_reader(peer_class), entity_writer(peer_class)

    def encode(message: Any) -> bytes:
        buffer = BytesIO()
        write(buffer, message)
        return buffer.getvalue()

    return (lambda data: read(data, 0)[0]), encode


def compare(rounds: int, only: list[str], chart: Path | None) -> None:
    print(report.machine(*PEERS))
    columns = ["µs", *(f"x {peer}" for peer in PEERS)]
    titles = [f"{operation} {column}" for operation in ("decode", "encode") for column in columns]
    report.header("message", "version", "bytes", *titles, "sum x kio")
    labels: list[str] = []
    ratios: dict[str, list[float]] = {}
    for cls, version in ((cls, version) for cls, versions in CASES for version in versions):
        if only and not any(name in cls.__name__ for name in only):
            continue
        data = sample(cls, version).encode(version)
        message = cls.decode(data, version)
        operations: dict[str, dict[str, Callable[[], object]]] = {
            "decode": {"kproto": lambda c=cls, d=data, v=version: c.decode(d, v)},  # type: ignore[misc]
            "encode": {"kproto": lambda m=message, v=version: m.encode(v)},  # type: ignore[misc]
        }
        for name, find_codec in zip(PEERS, (kafka_python, kio), strict=True):
            decode, encode = find_codec(cls, version)
            peer_message = decode(data)
            if name == "kafka-python":
                peer_message._header = (
                    None  # kafka-python's encoder reads the attribute, but its decoder does not set it.
                )
            if bytes(encode(peer_message)) != data:
                raise SystemExit(f"{name} encodes {cls.__name__} v{version} differently from kproto")
            operations["decode"][name] = lambda f=decode, d=data: f(d)  # type: ignore[misc]
            operations["encode"][name] = lambda f=encode, m=peer_message: f(m)  # type: ignore[misc]
        gc.collect()
        gc.freeze()  # Exclude the benchmark's own objects from collections.
        cells: list[object] = []
        sums = dict.fromkeys(("kproto", *PEERS), 0.0)
        for operation, candidates in operations.items():
            timings = report.measure(candidates, rounds)
            for name in timings:
                sums[name] += statistics.median(timings[name])
            cells.append(f"{statistics.median(timings['kproto']) * 1e6:.1f}")
            for name in PEERS:
                ratio = report.ratio(timings, "kproto", name)
                ratios.setdefault(f"{operation} x {name}", []).append(ratio)
                cells.append(ratio)
        sum_ratio = sums["kio"] / sums["kproto"]
        ratios.setdefault("decode and encode x kio", []).append(sum_ratio)
        report.row(cls.__name__, version, len(data), *cells, sum_ratio)
        labels.append(f"{cls.__name__} v{version}")
    report.header("geometric mean", "", "from", "to")
    measured = {label: statistics.geometric_mean(values) for label, values in ratios.items()}
    for label, values in ratios.items():
        report.row(label, measured[label], min(values), max(values))
    measured["encode x kafka-python, each"] = min(ratios["encode x kafka-python"])
    report.goals((label, measured[label], required) for label, required in GOALS.items())
    if chart:
        report.plot(chart, "Message codecs", report.machine(*PEERS), labels, ratios)


def print_sources(only: list[str]) -> None:
    """Print the Python code that kproto generated for these messages."""
    for cls, versions in CASES:
        if not only or any(name in cls.__name__ for name in only):
            for version in versions:
                cls.decode(sample(cls, version).encode(version), version)
    for filename, entry in list(linecache.cache.items()):
        if filename.startswith("<kproto"):
            print(f"# {filename}\n{''.join(entry[2] if len(entry) == 4 else [])}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--chart", type=Path, metavar="FILE", help="write a chart, such as benchmarks/codec.svg"
    )
    parser.add_argument("--source", action="store_true")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    measured = [cls.__name__ for cls, _ in CASES]
    for name in only:
        if not any(name in message for message in measured):
            parser.error(
                f"--only {name}: no message has this in its name; measured are {', '.join(measured)}"
            )
    if arguments.source:
        print_sources(only)
        return
    compare(arguments.rounds, only, arguments.chart)


if __name__ == "__main__":
    main()
