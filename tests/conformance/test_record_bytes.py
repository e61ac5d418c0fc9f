"""Kafka's MemoryRecords, and the builders and readers of two Python clients, check kproto's record batches.

kproto reads the batches that Kafka and the clients write, and Kafka and the clients read kproto's batches.
All codecs and magics (format versions) are tested. kproto's uncompressed batches equal the batches of Kafka
and the clients byte for byte, except for the leader epoch, which each client chooses.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.inspect.json_lines import decode_records, encode_records
from kproto.records import BatchBuilder, Record, encode_batch, rows
from kproto.records.compression import CODECS, compress
from kproto.records.legacy import encode_messages
from kproto.testing.strategies import NOW, RecordBatch, record_batches, record_sets
from tests.conformance import judges
from tests.records import bombs

CONTENT = st.none() | st.binary(max_size=9) | st.sampled_from([b"flight " * 300, bytes(70000)])
VALUES = st.lists(st.none() | st.binary(max_size=9) | st.just(b"flight " * 300), min_size=1, max_size=4)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)


# --- Python clients -----------------------------------------------------------------------------------------


@st.composite
def some(draw: st.DrawFn, magic: int) -> list[Record]:
    """Records as a client sends them: numbered from 0, each with a key, a value or headers."""
    records = []
    for at in range(draw(st.integers(1, 6))):
        key, value = draw(CONTENT), draw(CONTENT)
        records.append(
            Record(
                at,
                NOW + draw(st.integers(-9999, 9999)) if magic else -1,
                key,
                b"" if key is None and value is None else value,
                draw(HEADERS) if magic == 2 else (),
            )
        )
    return records


CLIENTS = {"kafka-python": "kafka.record", "aiokafka": "aiokafka.record"}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    try:
        return Client(CLIENTS[request.param])
    except ImportError as error:
        judges.missing(f"{request.param} ({error})")


class Client:
    """The record builders and reader of kafka-python or aiokafka, whose classes have the same names."""

    def __init__(self, package: str) -> None:
        def load(module: str, name: str) -> Any:
            return getattr(import_module(f"{package}.{module}"), name)

        self.batches = load("default_records", "DefaultRecordBatchBuilder")
        self.messages = load("legacy_records", "LegacyRecordBatchBuilder")
        self.reader = load("memory_records", "MemoryRecords")

    def write(self, records: list[Record], magic: int, codec: str) -> bytes:
        number = CODECS.index(codec)
        if magic == 2:
            builder = self.batches(2, number, 0, -1, -1, -1, 1 << 30)
        else:
            builder = self.messages(magic, number, 1 << 30)
        for record in records:
            builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        return bytes(builder.build())

    def read(self, data: bytes) -> list[Record]:
        records, result = self.reader(data), []
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            for record in batch:
                timestamp = -1 if record.timestamp is None else record.timestamp
                headers = tuple((name, None if v is None else bytes(v)) for name, v in record.headers)
                key, value = (None if v is None else bytes(v) for v in (record.key, record.value))
                result.append(Record(record.offset, timestamp, key, value, headers))
        return result


# Magic 0 is not combined with lz4. The lz4 frames of magic 0 have a wrong checksum, which these Python
# clients reject. Another test compares these frames with Kafka's.
FORMS = (
    [(2, codec) for codec in CODECS]
    + [(1, codec) for codec in CODECS[:4]]
    + [(0, codec) for codec in CODECS[:3]]
)


def written(records: list[Record], magic: int, codec: str) -> bytes:
    if magic == 2:
        return encode_batch(records, compression=codec)
    return encode_messages(records, magic, compression=codec)


@pytest.mark.clients
@pytest.mark.parametrize(("magic", "codec"), FORMS)
@given(data=st.data())
def test_clients_read_what_we_write(magic: int, codec: str, client: Client, data: st.DataObject) -> None:
    records = data.draw(some(magic))
    assert client.read(written(records, magic, codec)) == records


@pytest.mark.clients
@pytest.mark.parametrize(("magic", "codec"), FORMS)
@given(data=st.data())
def test_we_read_what_clients_write(magic: int, codec: str, client: Client, data: st.DataObject) -> None:
    records = data.draw(some(magic))
    assert rows(client.write(records, magic, codec)) == records


@pytest.mark.clients
@given(data=st.data())
def test_our_builder_writes_the_bytes_of_the_clients(client: Client, data: st.DataObject) -> None:
    records = data.draw(some(2))
    builder = BatchBuilder(max_bytes=1 << 30)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    ours = builder.build()
    theirs = client.write(records, 2, "none")
    # The leader epoch is not compared. The CRC does not cover it. kproto writes -1, and aiokafka writes 0.
    outside_the_crc = slice(12, 16)
    assert ours[: outside_the_crc.start] == theirs[: outside_the_crc.start]
    assert ours[outside_the_crc.stop :] == theirs[outside_the_crc.stop :]


# --- Kafka --------------------------------------------------------------------------------------------------


class Kafka:
    """A running java/Records.java."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Any) -> None:
        self._process = process
        self._errors = errors

    def ask(self, question: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"the JVM ended: {self._errors.read().decode(errors='replace')[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    source = Path(__file__).parent / "java" / "Records.java"
    command = [judges.java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", judges.kafka_jars(), str(source)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        yield Kafka(process, errors)


def question(drawn: list[RecordBatch]) -> dict[str, Any]:
    """Return the input for Records.java that describes the batches."""
    described: list[dict[str, Any]] = []
    listed: list[dict[str, Any]] = []
    for batch in drawn:
        header, records = batch.header, batch.records
        kind = header.get("timestamp_type", "CreateTime")
        described.append(
            {
                "baseOffset": batch.base_offset,
                "lastOffset": batch.last_offset,
                "magic": batch.magic,
                "compression": header["compression"],
                "timestampType": kind if batch.magic else "NoTimestampType",
                "maxTimestamp": header.get(
                    "max_timestamp", max((row.timestamp for row in records), default=-1)
                ),
                "producerId": header.get("producer_id", -1),
                "producerEpoch": header.get("producer_epoch", -1),
                "baseSequence": header.get("base_sequence", -1),
                "isTransactional": header.get("is_transactional", False),
                "isControl": header.get("is_control", False),
                "partitionLeaderEpoch": header.get("partition_leader_epoch", -1),
                "deleteHorizonMs": header.get("delete_horizon_ms"),
                "count": len(records),
            }
        )
        listed += [
            {
                "offset": row.offset,
                "timestamp": row.timestamp,
                "timestampType": described[-1]["timestampType"],
                "key": text(row.key),
                "value": text(row.value),
                "headers": [[name, text(content)] for name, content in row.headers],
            }
            for row in records
        ]
    return {"magic": drawn[0].magic if drawn else 2, "batches": described, "rows": listed}


def text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def agreed(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the part of `answer` on which Kafka and kproto must agree.

    If the bytes are valid, they must agree on the whole answer. If the bytes are invalid, they must agree
    only that `valid` is false.
    """
    return answer if answer.get("valid") else {"valid": False}


ANY_MAGIC = st.integers(0, 2).flatmap(lambda magic: record_batches(magic, max_records=6))


def joined(drawn: list[RecordBatch]) -> str:
    return b"".join(batch.data for batch in drawn).hex()


@pytest.mark.java
@given(drawn=record_sets(ANY_MAGIC))
def test_kafka_reads_random_batches(kafka: Kafka, drawn: list[RecordBatch]) -> None:
    data = {"hex": joined(drawn)}
    answer = kafka.ask(data)
    assert answer["valid"]
    assert answer["rows"] == question(drawn)["rows"]
    assert answer == decode_records(data)


@pytest.mark.java
@given(drawn=record_sets(record_batches(max_records=6)))
def test_kafka_reads_what_we_write(kafka: Kafka, drawn: list[RecordBatch]) -> None:
    expected = question(drawn)
    answer = kafka.ask({"hex": joined(drawn)})
    assert answer == {"valid": True, "batches": expected["batches"], "rows": expected["rows"]}


def built(batch: RecordBatch) -> bool:
    """Return whether Kafka can build this batch.

    Kafka cannot build an empty batch with a codec or a delete horizon.
    """
    return bool(batch.written) or (
        batch.header["compression"] == "none" and "delete_horizon_ms" not in batch.header
    )


BUILT = record_batches(max_records=6).filter(built)


@pytest.mark.java
@given(drawn=record_sets(BUILT))
def test_we_read_what_kafka_writes(kafka: Kafka, drawn: list[RecordBatch]) -> None:
    expected = question(drawn)
    data = kafka.ask(expected)
    assert decode_records(data) == {"valid": True, "batches": expected["batches"], "rows": expected["rows"]}


@pytest.mark.java
@given(drawn=record_sets(BUILT))
def test_we_write_what_kafka_writes(kafka: Kafka, drawn: list[RecordBatch]) -> None:
    for batch in drawn:
        batch.header["compression"] = "none"
    expected = question(drawn)
    assert encode_records(expected) == kafka.ask(expected)


@pytest.mark.java
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[:4])
@given(data=st.data())
def test_we_read_the_message_sets_that_kafka_writes(
    kafka: Kafka, magic: int, codec: str, data: st.DataObject
) -> None:
    expected = question([data.draw(record_batches(magic, codecs=[codec], max_records=6))])
    theirs = kafka.ask(expected)
    ours = decode_records(theirs)
    assert ours == kafka.ask(theirs)
    assert ours["rows"] == expected["rows"]


COMPRESSED = [(2, codec) for codec in CODECS[1:]] + [
    (magic, codec) for magic in (0, 1) for codec in CODECS[1:4]
]


@pytest.mark.java
@given(drawn=record_sets(ANY_MAGIC, max_size=2), data=st.data())
def test_kafka_and_we_reject_the_same_corrupted_batches(
    kafka: Kafka, drawn: list[RecordBatch], data: st.DataObject
) -> None:
    whole = bytearray.fromhex(joined(drawn))
    if whole:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        del whole[data.draw(st.integers(0, len(whole)) | st.just(len(whole))) :]
    data_ = {"hex": whole.hex()}
    assert agreed(decode_records(data_)) == agreed(kafka.ask(data_))


@pytest.mark.java
@pytest.mark.parametrize(("magic", "codec"), COMPRESSED)
@given(data=st.data())
def test_kafka_and_we_reject_the_same_ends_of_compressed_data(
    kafka: Kafka, magic: int, codec: str, data: st.DataObject
) -> None:
    """Kafka and kproto agree on batches whose compressed data is truncated, or followed by other bytes.

    The CRC of the batches is correct, so only decompressing and decoding can fail.
    """
    records = [Record(at, NOW, None, value) for at, value in enumerate(data.draw(VALUES))]
    plain = encode_batch(records)[61:] if magic == 2 else encode_messages(records, magic)
    packed = compress(CODECS.index(codec), plain)
    cut = data.draw(st.sampled_from([0, 0, 1, 2, 3, 4, 5, 8, 9]))
    # For zstd, no truncated frame is appended, because kproto rejects such a frame, but Java's reader does
    # not detect it.
    behind = st.sampled_from([b"", packed, bytes(5)])
    if codec != "zstd":
        behind |= st.binary(max_size=9) | st.just(packed[:20])
    packed = packed[: len(packed) - cut] + data.draw(behind)
    question = {"hex": bombs.batch(CODECS.index(codec), packed, len(records), magic).hex()}
    assert agreed(decode_records(question)) == agreed(kafka.ask(question))
