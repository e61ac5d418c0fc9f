"""kproto converts record batches as Kafka 3.9 does. The tests compare the batches after decompression."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kproto.errors import EncodeError
from kproto.records import batches, convert, rows
from kproto.records.compression import CODECS, decompress
from kproto.testing.strategies import RecordBatch, record_batches, record_sets
from tests.conformance import judges

pytestmark = pytest.mark.java
FORMS = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"]
SOURCE = Path(__file__).parent / "java" / "Convert.java"


class UnsupportedCompression(ValueError):
    """Raised if Kafka cannot convert the records; a broker would then return UNSUPPORTED_COMPRESSION_TYPE."""


class Kafka:
    """A running java/Convert.java."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Any) -> None:
        self._process = process
        self._errors = errors

    def ask(self, data: bytes, magic: int, **where: int) -> bytes:
        """Return the converted bytes. If Kafka rejects `data`, raise ValueError with the text of Kafka's
        error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"hex": data.hex(), "magic": magic, **where}
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"the JVM ended: {self._errors.read().decode(errors='replace')[-2000:]}")
        answer: dict[str, str] = json.loads(line)
        if "UnsupportedCompressionTypeException" in answer.get("error", ""):
            raise UnsupportedCompression(answer["error"])
        if "error" in answer:
            raise ValueError(answer["error"])
        return bytes.fromhex(answer["hex"])


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    jars = judges.kafka_jars(judges.OLD_KAFKA)
    command = [judges.java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", jars, str(SOURCE)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        yield Kafka(process, errors)


def joined(drawn: list[RecordBatch]) -> bytes:
    return b"".join(batch.data for batch in drawn)


def opened(data: bytes) -> list[tuple[bytes, bytes]]:
    """Split each batch into its header, without sizes and checksums, and its decompressed body."""
    pieces = []
    for batch in batches(data):
        raw = bytes(batch.data)
        head = 61 if batch.magic == 2 else 26 + 8 * batch.magic
        without_size_and_crc = raw[:8] + (
            raw[12:17] + raw[21:head] if batch.magic == 2 else raw[16 : head - 4]
        )
        body = raw[head:]
        if batch.codec and body:  # The body of a batch without records is not compressed.
            body = decompress(batch.codec, body, old_lz4=batch.magic == 0)
        pieces.append((without_size_and_crc, body))
    return pieces


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize(("source", "codec"), FORMS)
@given(data=st.data())
def test_a_fetch_converts_as_kafka(
    kafka: Kafka, source: int, magic: int, codec: str, data: st.DataObject
) -> None:
    kinds = record_batches(source, codecs=[codec], max_records=5)
    whole = joined(data.draw(record_sets(kinds, max_size=3)))
    start = data.draw(st.integers(0, 9))
    try:
        theirs = kafka.ask(whole, magic, fromOffset=start)
    except UnsupportedCompression:
        with pytest.raises(EncodeError, match="UNSUPPORTED_COMPRESSION_TYPE"):
            convert(whole, magic, up=False, from_offset=start)
        return
    ours = convert(whole, magic, up=False, from_offset=start)
    if codec == "none" or source <= magic:
        assert ours.hex() == theirs.hex()
    assert opened(ours) == opened(theirs)


@given(data=st.data(), magic=st.integers(0, 2))
def test_a_fetch_of_mixed_magics_converts_as_kafka(kafka: Kafka, data: st.DataObject, magic: int) -> None:
    kinds = st.integers(0, 2).flatmap(lambda source: record_batches(source, codecs=CODECS[:4], max_records=5))
    whole = joined(data.draw(record_sets(kinds)))
    ours, theirs = convert(whole, magic, up=False), kafka.ask(whole, magic, fromOffset=0)
    assert opened(ours) == opened(theirs)
    assert rows(ours, control=True) == rows(theirs, control=True)


@pytest.mark.parametrize("codec", CODECS[:4])
@pytest.mark.parametrize(("source", "magic"), [(0, 1), (0, 2), (1, 2)])
@given(data=st.data())
def test_records_of_old_producers_are_stored_as_by_kafka(
    kafka: Kafka, source: int, magic: int, codec: str, data: st.DataObject
) -> None:
    batch = data.draw(record_batches(source, codecs=[codec], max_records=9, compacted=False))
    # Batches with the timestamp type LogAppendTime are left out: brokers do not accept them from producers.
    assume(batch.header.get("timestamp_type") != "LogAppendTime")
    ours, theirs = convert(batch.data, magic), kafka.ask(batch.data, magic, firstOffset=batch.base_offset)
    if codec == "none":
        assert ours.hex() == theirs.hex()
    assert opened(ours) == opened(theirs)
