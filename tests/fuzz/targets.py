"""The fuzzer's targets: functions that take any bytes, and raise if kproto breaks a guarantee.

The first bytes of an input select how the other bytes are decoded. `TARGETS` maps a target's name to the
function that decodes inputs, and to the strategy that draws the seeds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, TypedDict, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kproto.errors import DecodeError, EncodeError, KprotoError, RecordError
from kproto.inspect.dissect import dissect, lines
from kproto.messages import index
from kproto.messages.headers import encode_request
from kproto.records import (
    AbortedTransactions,
    batch_table,
    batches,
    column_decoder,
    columns,
    convert,
    reader,
    row_lists,
    rows,
)
from kproto.records import compression as compressing
from kproto.records.batch import crc32c
from kproto.records.codecs import CodecError, cramjam, lz4, zstd
from kproto.records.compression import compress, decompress, decompress_blocks, decompress_into
from kproto.records.legacy import begins_messages
from kproto.records.record import begins_records, wrap
from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, unsecured
from kproto.security.plain import PlainClient, PlainServer
from kproto.security.scram import Credential, ScramClient, ScramServer, credential
from kproto.testing.strategies import Drawn, RecordBatch, record_batches, record_sets, requests, versioned
from kproto.wire import Message, interpreter

# The limit of decompressed bytes per read, unless the input selects the default limit. Decompression bombs
# have their own tests.
LIMIT = 1 << 20
T = TypeVar("T")


class _Wanted(TypedDict):
    check_crc: bool
    control: bool
    from_offset: int | None
    aborted: list[tuple[int, int]]


@cache
def all_versions() -> list[tuple[type[Message], int]]:
    """Return each version of each message. The order changes only if Kafka's messages change."""
    pairs = []
    for cls in map(index.message_class, index.names()):
        pairs += [(cls, version) for version in range(cls.__versions__.min, cls.__versions__.max + 1)]
    return pairs


def messages(data: bytes) -> None:
    """Check that the decoder of a message agrees with `interpreter.decode`, and with the encoder.

    Encoding the decoded message must produce bytes that decode to an equal message.
    """
    known = all_versions()
    cls, version = known[int.from_bytes(data[:2], "big") % len(known)]
    body = data[2:]
    try:
        expected: Message | None = interpreter.decode(cls, body, 0, version)[0]
    except DecodeError:
        expected = None
    try:
        decoded = cls.decode(body, version)
    except DecodeError:
        assert expected is None
        return
    assert repr(decoded) == repr(expected)
    encoded = decoded.encode(version)
    assert encoded == interpreter.encode(decoded, version)
    reread = cls.decode(encoded, version)
    assert reread.encode(version) == encoded
    assert reread == decoded or "nan" in repr(decoded)  # NaN is the only value that is not equal to itself


def frames(data: bytes) -> None:
    """Check that every request frame is decoded and printed, or rejected with a KprotoError."""
    with suppress(KprotoError):
        list(lines(dissect(data)))


def records(data: bytes) -> None:
    """Check that rows, lists, columns, batches and converted batches agree, and raise only RecordError.

    The first byte of the input selects the arguments of the readers.
    """
    head, body = data[0] if data else 0, data[1:]
    if head & 64:
        body = _with_valid_crcs(body)
    check_crc, control = head % 4 == 0, bool(head & 4)
    # If `body` starts with a batch, the bit `head & 8` sets `from_offset` to the offset of the batch's second
    # record, and the bit `head & 16` adds the batch's producer id to `aborted`.
    from_offset = wrap(int.from_bytes(body[:8], "big") + 1) if head & 8 else None
    aborted = [(int.from_bytes(body[43:51], "big", signed=True), 0)] if head & 16 else []
    # With the limit None, the readers use their default limit, which rises to 1 GiB for data that looks like
    # records.
    limit = None if head & 128 else LIMIT
    wanted = _Wanted(check_crc=check_crc, control=control, from_offset=from_offset, aborted=aborted)

    def one_by_one() -> list[Any]:
        records: list[Any] = []
        transactions = AbortedTransactions(aborted)
        for batch in batches(body, check_crc=check_crc, max_decompressed=limit):
            if transactions.skips(batch) or (batch.is_control and not control):
                continue
            if from_offset is None or batch.last_offset >= from_offset:
                records += [
                    record
                    for record in batch.records(limit)
                    if from_offset is None or batch.base_offset >= from_offset or record.offset >= from_offset
                ]
        return records

    def by_lists() -> list[Any]:
        lists = row_lists(body, 2, **wanted, max_decompressed=limit)
        return [record for records in lists for record in records]

    def by_columns(lent: bool) -> list[Any]:
        return columns.columns(body, **wanted, max_decompressed=limit, lent=lent).rows()

    def by_parts() -> list[Any]:
        parts = [columns.FetchedPart(body, aborted, from_offset) for _ in range(2)]
        read = columns.columns_of(parts, check_crc=check_crc, control=control, max_decompressed=limit)
        first, second = read.part(0).rows(), read.part(1).rows()
        assert first == second
        return first

    expected = outcome(one_by_one)
    assert outcome(lambda: rows(body, **wanted, max_decompressed=limit)) == expected
    assert outcome(by_lists) == expected
    assert outcome(lambda: by_columns(False)) == expected
    assert outcome(lambda: by_columns(True)) == expected
    assert outcome(by_parts) == expected
    if check_crc and expected is not None and from_offset is None and not (control or aborted):
        for magic in range(3):
            with suppress(RecordError, EncodeError):
                data = convert(body, magic, max_decompressed=limit)
                assert [(row.offset, row.key, row.value) for row in rows(data)] == [
                    (row.offset, row.key, row.value) for row in expected
                ]


def _with_valid_crcs(data: bytes) -> bytes:
    """Correct the CRCs of all batches and outer messages, so that readers decode what follows the CRC."""
    field, at = bytearray(data), 0
    while len(field) - at >= 17:
        stop = at + 12 + int.from_bytes(field[at + 8 : at + 12], "big")
        if stop > len(field):
            break
        if field[at + 16] == 2 and stop >= at + 61:
            field[at + 17 : at + 21] = crc32c(field[at + 21 : stop]).to_bytes(4, "big")
        elif stop > at + 16:
            field[at + 12 : at + 16] = zlib.crc32(field[at + 16 : stop]).to_bytes(4, "big")
        at = stop
    return bytes(field)


def outcome(read: Callable[[], T], error: type[Exception] = RecordError) -> T | None:
    with suppress(error):
        return read()
    return None


def compression(data: bytes) -> None:
    """Check that all ways to decompress agree, and that each stays within the limit or raises CodecError.

    The first byte of the input selects the codec and the limits.
    """
    head, body = data[0] if data else 0, data[1:]
    codec, old = 1 + head % 4, bool(head & 4)
    limit = None if head & 8 else LIMIT
    begins = begins_records if head & 16 else begins_messages if head & 32 else None

    def whole() -> bytes:
        return decompress(codec, body, limit, old_lz4=old, begins=begins)

    def by_blocks() -> bytes:
        return b"".join(decompress_blocks(codec, body, limit, begins, old_lz4=old))

    def into(size: int) -> bytes | None:
        out = bytearray(size)
        written = decompress_into(codec, memoryview(body), memoryview(out), limit, begins)
        return None if written is None else bytes(out[:written])

    plain = outcome(whole, CodecError)
    assert outcome(by_blocks, CodecError) == plain
    if not old:
        assert outcome(lambda: into(2 * LIMIT), CodecError) == plain
    if codec == 4:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zstd, "_zstandard", lambda: None)
            assert outcome(whole, CodecError) == outcome(lambda: into(2 * LIMIT), CodecError) == plain
    if plain is not None:
        assert len(plain) <= LIMIT
        if not old:
            assert into(len(plain)) in (plain, None)
        assert decompress(codec, compress(codec, plain), LIMIT) == plain


# Seeds.


def _message(drawn: tuple[type[Message], tuple[int, Message]]) -> bytes:
    cls, (version, message) = drawn
    return all_versions().index((cls, version)).to_bytes(2, "big") + message.encode(version)


def _frame(drawn: Drawn) -> bytes:
    return encode_request(drawn.message, drawn.version, 7, "fuzz")


def _records(options: int, drawn: list[RecordBatch]) -> bytes:
    return bytes((options,)) + b"".join(batch.data for batch in drawn)


_some_message = st.sampled_from(index.names()).flatmap(
    lambda name: st.tuples(
        st.just(index.message_class(name)), versioned(index.message_class(name), unknown_tags=True)
    )
)
# Short keys and values, so that mutations also hit the fields around them.
_short = st.none() | st.binary(max_size=3)
# The first bytes of inputs of `records`. With 0, the readers check CRCs, and so reject mutated records. With
# an odd value, they do not check CRCs. With bit 64, `records` first corrects the CRCs.
_OPTIONS = (0, 1, 1, 5, 9, 17, 64, 64, 68, 72, 80, 129, 192)
_some_records = record_sets(
    st.integers(0, 2).flatmap(lambda magic: record_batches(magic, keys=_short, values=_short, max_records=4)),
    max_size=3,
)
UNGUESSED = "2f0c7d4b9a1e-nobody-guesses-this"
# The separator between the messages of an exchange. It is not valid UTF-8, so no text contains it.
_BETWEEN = b"\xff\xfe"


def _known(mechanism: str, name: str) -> Credential:
    return credential(mechanism, b"salted", b"salt", 4096)


def _halves() -> list[Any]:
    """Return the client and the server of each mechanism, before their first message."""
    exchanges: list[Any] = [PlainServer(lambda name: UNGUESSED), PlainClient("alice", UNGUESSED)]
    exchanges += [OAuthBearerServer(unsecured(lambda: 1_000)), OAuthBearerClient("e30.e30.")]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        knows = partial(_known, mechanism)
        exchanges.append(ScramServer(mechanism, knows, "n0nce", knows))
        exchanges.append(
            ScramClient(mechanism, "alice", UNGUESSED, "fyko", salt_password=lambda *_: b"salted")
        )
    return exchanges


def sasl(data: bytes) -> None:
    """Check that a mechanism answers or rejects any bytes, and raises only SaslFailed.

    PLAIN's server, and SCRAM's server and client, require proof that the peer knows a secret. None of the
    three may complete a login, because random bytes do not contain the proof.
    """
    halves = _halves()
    half = halves[data[0] % len(halves)] if data else halves[0]
    for message in data[1:].split(_BETWEEN):
        if hasattr(half, "evaluate_response"):
            step = half.evaluate_response(message)
            assert isinstance(step, Challenge | Accepted | Rejected)
            if isinstance(step, Accepted):
                # This server accepts unsigned tokens, so OAUTHBEARER may succeed.
                assert half.mechanism == "OAUTHBEARER"
                assert step.principal
            if not isinstance(step, Challenge):
                return
        else:
            try:
                answer = half.answer(message)
            except SaslFailed:
                return
            # The answer None means that the client has accepted the broker. A SCRAM client must not, because
            # without the password its peer cannot compute the broker's signature.
            if answer is None:
                assert not half.mechanism.startswith("SCRAM")
                return
            assert isinstance(answer, bytes)


_sasl_words = st.sampled_from(
    [
        b"\0alice\0" + UNGUESSED[:-1].encode(),
        b"n,,n=alice,r=abc",
        b"c=biws,r=abcn0nce,p=" + b"A" * 43 + b"=",
        b"r=fykoserver,s=c2FsdA==,i=4096",
        b"v=" + b"A" * 43 + b"=",
        b"e=invalid-proof",
        b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhIn0.\x01\x01",
        b"n,a=alice,\x01auth=Bearer a.b.c\x01x=y\x01\x01",
        b"\x01",
    ]
)
_some_sasl = st.builds(
    lambda half, messages: bytes((half,)) + _BETWEEN.join(messages),
    st.integers(0, 7),
    st.lists(_sasl_words | st.binary(max_size=40), max_size=3),
)
# The forms of compressed data that a topic may contain. The last four are unusual: a raw snappy block, an lz4
# frame of linked blocks, an lz4 frame with magic 0's header checksum, and a zstd frame before a skippable
# frame.
_PACKERS: tuple[tuple[int, Callable[[bytes], bytes]], ...] = (
    *((codec, partial(compress, codec)) for codec in (1, 2, 3, 4)),
    (2, lambda data: bytes(cramjam("snappy").compress_raw(data))),
    (3, lambda data: bytes(cramjam("lz4").compress(data))),
    (3, lambda data: lz4.with_old_header(compress(3, data))),
    (4, lambda data: compress(4, data) + b"\x50\x2a\x4d\x18\2\0\0\0\0\0"),
)


def _pack(packer: tuple[int, Callable[[bytes], bytes]], options: int, pieces: list[bytes]) -> bytes:
    codec, pack = packer
    return bytes((codec - 1 | options << 2,)) + b"".join(map(pack, pieces))


_some_compressed = st.builds(
    _pack,
    st.sampled_from(_PACKERS),
    st.integers(0, 15),
    st.lists(
        st.binary(max_size=200) | st.builds(bytes, st.sampled_from([0, 9, 70000, 2 * LIMIT])),
        min_size=1,
        max_size=2,
    ),
)


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: st.SearchStrategy[bytes]


TARGETS = {
    "messages": Target(messages, _some_message.map(_message)),
    "frames": Target(frames, requests(unknown_tags=True).map(_frame)),
    "records": Target(records, st.builds(_records, st.sampled_from(_OPTIONS), _some_records)),
    "sasl": Target(sasl, _some_sasl),
    "compression": Target(compression, _some_compressed),
}


def seeds(target: Target, count: int) -> list[bytes]:
    """Return `count` seeds of the target, the same ones in every run."""
    seeds: list[bytes] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.seeds)
    def draw(data: bytes) -> None:
        seeds.append(data)

    draw()
    return seeds


@contextmanager
def hurried() -> Iterator[None]:
    """Lower the thresholds, so that numpy decodes even a few records."""
    from kproto import errors
    from tests.records.claims import Package

    with pytest.MonkeyPatch.context() as patch:
        Package(import_module("kproto.records"), columns, batch_table, column_decoder, errors).hurry(patch)
        patch.setattr(reader, "WORTH_COLUMNS", 4)
        patch.setattr(compressing, "ALWAYS_ALLOWED", 1 << 12)
        patch.setattr(compressing, "LOOK", 1 << 12)
        patch.setattr(compressing, "MOST", LIMIT)
        yield
