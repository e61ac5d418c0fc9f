"""Message codecs: kproto against kafka-python 3 and kio, message by message.

    python -m benchmarks.codec [--rounds 15] [--only Fetch,Metadata] [--source]

Every round runs all candidates, in rotating order, in one thread, timed by that thread's own CPU clock; a
figure is the median over the rounds in microseconds, a ratio ("x") is the median of the ratios within a
round, above 1 where kproto is faster. The bytes are made by kproto and are what all decode; every peer
encodes what it decoded itself, and has to come back to the same bytes. kio decodes in Rust and encodes in
Python; kafka-python generates code, as we do. `--source` prints what kproto runs instead of measuring it.

The goals are geometric means, and one is for each message. They are all reached, but "decode x kio" only
just: four runs gave 0.70, 0.71, 0.71 and 0.70 (Python 3.11, two busy cores). What is made of strings that
stand alone, a JoinGroupRequest, stays at 0.4 of kio's Rust; large arrays are read as fast as by it.

Metadata makes 30,000 lists, so whoever is measured has the garbage collector go through them; what the
benchmark itself keeps is frozen before.

What was tried and lost: for a single list of numbers, packing it together with its surroundings was 0.8
times as fast as packing it apart; for the three of a metadata partition 1.2 to 1.3 times, so only several
are packed together. `contest_base.py` has what was tried for decoding.
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
    "both ways x kio": 5.0,
}

# How many elements an array has, how many bytes a value, what a string says. A group of 100 members, 50
# topics of 10 partitions, a cluster of 1000 topics; nothing new to fetch; optional fields are null or empty.
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
OFTEN_SET = {"protocol_type", "protocol_name", "name", "cluster_id", "reason", "topics"}


def sample(cls: type[Any], version: int, index: int = 0) -> Any:
    """A message as it is seen in practice; no tagged field is set."""
    values: dict[str, Any] = {}
    for f in cls.__fields__:
        if version not in f.versions or version in f.tagged:
            continue
        if version in f.nullable and f.name not in OFTEN_SET:
            values[f.name] = b"" if getattr(f.kind, "name", "") == "records" else None
        elif isinstance(f.kind, Array):
            count = 1000 if cls is MetadataResponse and f.name == "topics" else COUNTS[f.name]
            values[f.name] = [_value(cls, f.name, f.kind.element, version, index) for index in range(count)]
        else:
            values[f.name] = _value(cls, f.name, f.kind, version, index)
    return cls(**values)


def _value(cls: type[Any], name: str, kind: Any, version: int, index: int) -> Any:
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
    modules = (
        "consumer.group",
        "consumer.offsets",
        "consumer.fetch",
        "consumer.metadata",
        "metadata.metadata",
    )
    peer: Any = None
    for module in modules:
        try:
            found = importlib.import_module(f"kafka.protocol.{module}")
        except ImportError:
            continue
        peer = peer or getattr(found, cls.__name__, None)
    return (lambda data: peer.decode(data, version=version)), (
        lambda message: message.encode(version=version)
    )


def kio(cls: type[Message], version: int) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    from kio.serial import entity_reader, entity_writer

    api = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    folder, kind = api.rsplit("_", 1)
    peer = getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{kind}"), cls.__name__)
    read, write = entity_reader(peer), entity_writer(peer)

    def encode(message: Any) -> bytes:
        buffer = BytesIO()
        write(buffer, message)
        return buffer.getvalue()

    return (lambda data: read(data, 0)[0]), encode


def table(rounds: int, only: list[str]) -> None:
    print(report.machine(*PEERS))
    titles = [f"{way} {what}" for way in ("decode", "encode") for what in ("µs", *(f"x {p}" for p in PEERS))]
    report.header("message", "version", "bytes", *titles, "both x kio")
    labels: list[str] = []
    ratios: dict[str, list[float]] = {}
    for cls, version in ((cls, version) for cls, versions in CASES for version in versions):
        if only and not any(name in cls.__name__ for name in only):
            continue
        data = sample(cls, version).encode(version)
        message = cls.decode(data, version)
        ways: dict[str, dict[str, Callable[[], object]]] = {
            "decode": {"kproto": lambda c=cls, d=data, v=version: c.decode(d, v)},  # type: ignore[misc]
            "encode": {"kproto": lambda m=message, v=version: m.encode(v)},  # type: ignore[misc]
        }
        for name, peer in zip(PEERS, (kafka_python, kio), strict=True):
            decode, encode = peer(cls, version)
            theirs = decode(data)
            if name == "kafka-python":
                theirs._header = None  # its decoder forgets to, and its encoder asks
            if bytes(encode(theirs)) != data:
                raise SystemExit(f"{name} has other bytes for {cls.__name__} v{version}")
            ways["decode"][name] = lambda f=decode, d=data: f(d)  # type: ignore[misc]
            ways["encode"][name] = lambda f=encode, m=theirs: f(m)  # type: ignore[misc]
        gc.collect()
        gc.freeze()  # so that nobody pays for walking through what is kept here
        cells: list[object] = []
        both = dict.fromkeys(("kproto", *PEERS), 0.0)
        for way, candidates in ways.items():
            taken = report.measure(candidates, rounds)
            for name in taken:
                both[name] += statistics.median(taken[name])
            cells.append(f"{statistics.median(taken['kproto']) * 1e6:.1f}")
            for name in PEERS:
                found = ratios.setdefault(f"{way} x {name}", [])
                found.append(report.ratio(taken, "kproto", name))
                cells.append(found[-1])
        ratios.setdefault("both ways x kio", []).append(both["kio"] / both["kproto"])
        report.row(cls.__name__, version, len(data), *cells, ratios["both ways x kio"][-1])
        labels.append(f"{cls.__name__} v{version}")
    report.header("geometric mean", "", "from", "to")
    for what, found in ratios.items():
        report.row(what, statistics.geometric_mean(found), min(found), max(found))
    reached = {what: statistics.geometric_mean(found) for what, found in ratios.items()}
    reached["encode x kafka-python, each"] = min(ratios["encode x kafka-python"])
    report.goals((what, reached[what], wanted) for what, wanted in GOALS.items())
    if not only:
        picture = Path(__file__).with_name("codec.svg")
        report.plot(picture, "Message codecs", report.machine(*PEERS), labels, ratios)


def sources(only: list[str]) -> None:
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
    parser.add_argument("--source", action="store_true")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    if arguments.source:
        sources(only)
        return
    table(arguments.rounds, only)


if __name__ == "__main__":
    main()
