"""The fuzzer's targets: functions that take any bytes, and raise if kproto breaks a guarantee.

The first bytes of an input select how the further bytes are decoded. `TARGETS` has all targets, with the
strategies that draw their seeds. The command `python -m tests.fuzz` and the quick test use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kproto.errors import DecodeError, EncodeError, KprotoError, RecordError
from kproto.inspect.dissect import dissect, lines
from kproto.messages import index
from kproto.messages.headers import encode_request
from kproto.records import batch_table, batches, column_decoder, columns, convert, reader, rows
from kproto.records import compression as compressing
from kproto.records.codecs import CodecError
from kproto.records.compression import CODECS, compress, decompress, decompress_into
from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, unsecured
from kproto.security.plain import PlainClient, PlainServer
from kproto.security.scram import Credential, ScramClient, ScramServer, credential
from kproto.testing.strategies import Drawn, RecordBatch, record_batches, record_sets, requests, versioned
from kproto.wire import Message, interpreter

# The limit of decompressed bytes in all targets. Decompression bombs have their own tests.
LIMIT = 1 << 20


@cache
def all_versions() -> list[tuple[type[Message], int]]:
    """Return every version of every message, in an order that changes only with a newer Kafka."""
    pairs = []
    for cls in map(index.message_class, index.names()):
        pairs += [(cls, version) for version in range(cls.__versions__.min, cls.__versions__.max + 1)]
    return pairs


def messages(data: bytes) -> None:
    """Check that the decoder agrees with the interpreter, and with the encoder.

    The decoded message can be encoded and decoded again.
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
    """Check that a request frame is decoded or rejected with a KprotoError, and that it can be printed."""
    with suppress(KprotoError):
        list(lines(dissect(data)))


def records(data: bytes) -> None:
    """Check that rows, columns, batches and converted batches agree, and raise only RecordError."""
    check_crc, body = not data[:1] or data[0] % 4 == 0, data[1:]
    # With None, the readers use their default limits: up to 1 GiB for data that looks like records.
    limit = None if data[:1] > b"\x7f" else LIMIT

    def one_by_one() -> list[Any]:
        records: list[Any] = []
        for batch in batches(body, check_crc=check_crc, max_decompressed=limit):
            if not batch.is_control:
                records += batch.records(limit)
        return records

    wanted = outcome(one_by_one)
    assert outcome(lambda: rows(body, check_crc=check_crc, max_decompressed=limit)) == wanted

    def by_columns(lent: bool) -> list[Any]:
        return columns.columns(body, check_crc=check_crc, max_decompressed=limit, lent=lent).rows()

    assert outcome(lambda: by_columns(False)) == outcome(lambda: by_columns(True)) == wanted
    if check_crc and wanted is not None:
        for magic in range(3):
            with suppress(RecordError, EncodeError):
                data = convert(body, magic, max_decompressed=limit)
                assert [(row.offset, row.key, row.value) for row in rows(data)] == [
                    (row.offset, row.key, row.value) for row in wanted
                ]


def outcome(read: Callable[[], list[Any]]) -> list[Any] | None:
    with suppress(RecordError):
        return read()
    return None


def compression(data: bytes) -> None:
    """Check that both ways of decompression agree: they stay within the limit or raise CodecError."""
    if not data:
        return
    codec, old, body = 1 + data[0] % 4, bool(data[0] & 4), data[1:]
    out = bytearray(LIMIT)
    try:
        plain = decompress(codec, body, LIMIT, old_lz4=old)
    except CodecError:
        if not old:
            with pytest.raises(CodecError):
                decompress_into(codec, memoryview(body), memoryview(out), LIMIT)
        return
    assert len(plain) <= LIMIT
    if not old:
        size = decompress_into(codec, memoryview(body), memoryview(out), LIMIT)
        assert size == len(plain)
        assert out[:size] == plain
    assert decompress(codec, compress(codec, plain), LIMIT) == plain


# Seeds.


def _message(drawn: tuple[type[Message], tuple[int, Message]]) -> bytes:
    cls, (version, message) = drawn
    return all_versions().index((cls, version)).to_bytes(2, "big") + message.encode(version)


def _frame(drawn: Drawn) -> bytes:
    return encode_request(drawn.message, drawn.version, 7, "fuzz")


def _records(drawn: list[RecordBatch]) -> bytes:
    return b"\1" + b"".join(batch.data for batch in drawn)


_some_message = st.sampled_from(index.names()).flatmap(
    lambda name: st.tuples(
        st.just(index.message_class(name)), versioned(index.message_class(name), unknown_tags=True)
    )
)
# Short keys and values, so that mutations also hit the fields around them.
_short = st.none() | st.binary(max_size=3)
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
    """Check that any bytes of the peer lead to a challenge or a rejection, but never to a login."""
    halves = _halves()
    half = halves[data[0] % len(halves)] if data else halves[0]
    for message in data[1:].split(_BETWEEN):
        if hasattr(half, "evaluate_response"):
            step = half.evaluate_response(message)
            assert isinstance(step, Challenge | Accepted | Rejected)
            if isinstance(step, Accepted):
                assert half.mechanism == "OAUTHBEARER"  # This server accepts unsigned tokens.
                assert step.principal
            if not isinstance(step, Challenge):
                return
        else:
            try:
                answer = half.answer(message)
            except SaslFailed:
                return
            # None means that the login has succeeded. This is impossible with SCRAM, because the peer does
            # not know the password and cannot compute the broker's signature.
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
_some_compressed = st.builds(
    lambda codec, data: bytes((codec - 1,)) + compress(codec, data),
    st.integers(1, len(CODECS) - 1),
    st.binary(max_size=200) | st.builds(bytes, st.sampled_from([0, 9, 70000, 2 * LIMIT])),
)


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: st.SearchStrategy[bytes]


TARGETS = {
    "messages": Target(messages, _some_message.map(_message)),
    "frames": Target(frames, requests(unknown_tags=True).map(_frame)),
    "records": Target(records, _some_records.map(_records)),
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
        patch.setattr(compressing, "MOST", LIMIT)
        yield
