"""Message codecs: kproto against kafka-python 3 and kio, message by message.

    python -m benchmarks.codec [--rounds 15] [--only Fetch,Metadata] [--source]

Every round runs all candidates, in rotating order, in one thread, timed by that thread's own CPU clock; a
figure is the median over the rounds in microseconds, a ratio ("x") is the median of the ratios within a
round, above 1 where kproto is faster. The bytes are made by kproto and are what all decode; every peer
encodes what it decoded itself, and has to come back to the same bytes. kio decodes in Rust and encodes in
Python; kafka-python generates code, as we do. `--source` prints what kproto runs instead of measuring it.

Goals, as geometric means: decode 2.5 times kafka-python and 0.7 times kio, encode 5 times kafka-python and
3 times in each case, both ways together 5 times kio. Reached are 2.6 and 0.50, 7.0 and 3.7 (Python 3.11, two
busy cores): 0.7 of kio's Rust was not.

What was tried and lost, in microseconds for an array of 10 partitions on a busy machine: checking the lengths
of a run by one slice for each of their bytes, `buf[at::size].lstrip(byte)`, took 7.1 (metadata v5, 12 bytes)
and 4.2 (fetch v11, 8 bytes) before anything was read, so the loop compares them itself. For a single list of
numbers, packing it together with its surroundings was 0.8 times as fast as packing it apart; for the
three of a metadata partition 1.2 to 1.3 times, so only several are packed together.
"""

from __future__ import annotations

import argparse
import importlib
import linecache
import platform
import re
import statistics
import time
import uuid
from collections.abc import Callable
from importlib.metadata import version as installed
from io import BytesIO
from typing import Any

from kproto.messages.fetch import FetchRequest, FetchResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.metadata import MetadataResponse
from kproto.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.wire import Array, Message, Primitive

# Per array: how many elements. Everything else follows from the field's type.
SIZES: dict[str, int] = {
    "protocols": 2,
    "members": 100,
    "assignments": 100,
    "brokers": 12,
    "topics": 20,
    "responses": 20,
    "groups": 1,
    "partitions": 10,
    "partition_indexes": 10,
    "replica_nodes": 3,
    "isr_nodes": 3,
    "offline_replicas": 0,
    "forgotten_topics_data": 0,
    "aborted_transactions": 0,
}
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
    (FetchRequest, [17, 11]),
    (FetchResponse, [17, 11]),
]


def sample(cls: type[Any], version: int) -> Any:
    """A message as it is seen in practice: names, ids, 100 bytes of metadata; no tagged field is set."""
    values: dict[str, Any] = {}
    for f in cls.__fields__:
        if version not in f.versions or version in f.tagged:
            values[f.name] = f.initial()
        elif isinstance(f.kind, Array):
            element = f.kind.element
            values[f.name] = [
                _value(f.name, element, version, index) for index in range(SIZES.get(f.name, 1))
            ]
        else:
            values[f.name] = _value(f.name, f.kind, version, 0)
    return cls(**values)


def _value(name: str, kind: Any, version: int, index: int) -> Any:
    if not isinstance(kind, Primitive):
        return sample(kind, version)
    if kind.name == "string":
        return f"consumer-{index}-3c2ef0f4-{name}" if "id" in name else f"{name}-{index}"
    if kind.name in ("bytes", "records"):
        return bytes(range(100))
    if kind.name == "uuid":
        return uuid.UUID(int=index + 1 << 64 | 7)
    return (
        kind.zero if kind.name in ("bool", "float64") else index + 1 if name.endswith(("index", "id")) else 0
    )


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


def measure(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds per call, per candidate and round."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    calls: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        start = time.thread_time()
        call()
        calls[name] = max(1, int(0.01 / max(time.thread_time() - start, 1e-6)))
    names = list(candidates)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call, times = candidates[name], calls[name]
            start = time.thread_time()
            for _ in range(times):
                call()
            taken[name].append((time.thread_time() - start) / times)
    return taken


def ratio(taken: dict[str, list[float]], theirs: str) -> float:
    return statistics.median(b / a for a, b in zip(taken["kproto"], taken[theirs], strict=True))


def table(rounds: int, only: list[str]) -> None:
    print(
        "| message | version | bytes "
        "| decode µs | x kafka-python | x kio | encode µs | x kafka-python | x kio |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    ratios: dict[tuple[str, str], list[float]] = {}
    for cls, versions in CASES:
        if only and not any(name in cls.__name__ for name in only):
            continue
        for version in versions:
            message = sample(cls, version)
            data = message.encode(version)
            decoders: dict[str, Callable[[], object]] = {
                "kproto": lambda c=cls, d=data, v=version: c.decode(d, v)
            }  # type: ignore[misc]
            encoders: dict[str, Callable[[], object]] = {"kproto": lambda m=message, v=version: m.encode(v)}  # type: ignore[misc]
            for name, peer in (("kafka-python", kafka_python), ("kio", kio)):
                decode, encode = peer(cls, version)
                theirs = decode(data)
                if name == "kafka-python":
                    theirs._header = None  # its decoder forgets to, and its encoder asks
                if bytes(encode(theirs)) != data:
                    raise SystemExit(f"{name} has other bytes for {cls.__name__} v{version}")
                decoders[name] = lambda f=decode, d=data: f(d)  # type: ignore[misc]
                encoders[name] = lambda f=encode, m=theirs: f(m)  # type: ignore[misc]
            cells: list[str] = []
            both: dict[str, float] = {}
            for way, candidates in (("decode", decoders), ("encode", encoders)):
                taken = measure(candidates, rounds)
                for name in taken:
                    both[name] = both.get(name, 0) + statistics.median(taken[name])
                cells.append(f"{statistics.median(taken['kproto']) * 1e6:.1f}")
                for name in ("kafka-python", "kio"):
                    ratios.setdefault((way, name), []).append(ratio(taken, name))
                    cells.append(f"{ratios[way, name][-1]:.2f}")
            ratios.setdefault(("both ways", "kio"), []).append(both["kio"] / both["kproto"])
            print(f"| {cls.__name__} | {version} | {len(data)} | {' | '.join(cells)} |", flush=True)
    for (way, name), found in ratios.items():
        low, high = min(found), max(found)
        print(f"{way} x {name}: {statistics.geometric_mean(found):.2f} ({low:.2f} to {high:.2f})")


def sources(only: list[str]) -> None:
    for cls, versions in CASES:
        if not only or any(name in cls.__name__ for name in only):
            cls.decode(sample(cls, versions[0]).encode(versions[0]), versions[0])
    for filename, entry in list(linecache.cache.items()):
        if filename.startswith("<kproto") and filename.endswith(("encode>", "decode>")):
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
    print(f"Python {platform.python_version()}, {platform.machine()}; ", end="")
    print(", ".join(f"{name} {installed(name)}" for name in ("kafka-python", "kio")))
    table(arguments.rounds, only)


if __name__ == "__main__":
    main()
