"""Convert messages and record sets between bytes and JSON, one JSON object per line.

`kproto decode --json` and `kproto encode --json` use this module. `kproto.messages.json_form` defines the
JSON form of a message.

    messages   {"kind", "name", "api_key", "version", "hex"}   ->  {"json": {...}}      decode
               {"kind", "name", "api_key", "version", "json"}  ->  {"hex": "..."}       encode
    records    {"hex"}, optionally "topic"                     ->  {"valid", "batches", "rows"}
               {"batches", "rows"}                             ->  {"hex": "..."}

`kind` is request, response, header, data or record. `name` is Kafka's name for the message. `hex` is the
body, without the size prefix and the header. For data and record, `hex` also lacks the int16 version before
the body.

Each line of input (a `Question`) gets one line of output (its `Answer`), in the same order. The answer to an
invalid line is {"error": "reason"}. The answer to an invalid record set has "error" as an additional key.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ..errors import ConfigError, DecodeError, EncodeError, KprotoError, RecordError
from ..messages.index import RECORDS_OF, key_of, kind_of, message_class, no_message
from ..messages.json_form import from_json, to_json
from ..records import batches, encode_batch
from ..records.record import Record
from ..records.record_stream import record_lists
from ..wire.message import Message
from .internal_records import decode_internal

Question = Mapping[str, Any]
Answer = dict[str, Any]


class BadQuestion(KprotoError, ValueError):
    """A line of input does not have the required form. The message gives the reason."""


def answers(lines: Iterable[str | bytes], answer: Callable[[Question], Answer]) -> Iterator[Answer]:
    """Yield an answer for each line of JSON. An invalid line does not affect the answers to other lines."""
    for line in lines:
        try:
            yield answer(parse_question(line))
        except (KprotoError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            yield {"error": reason}


def parse_question(line: str | bytes) -> Question:
    """Return the JSON object in `line`. Raises BadQuestion if the line is not one JSON object."""
    try:
        parsed = _parse(line if isinstance(line, str) else line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadQuestion(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}" if line.strip() else "an empty line"
        raise BadQuestion(f"not JSON: {reason}") from None
    except BadQuestion:  # It is a ValueError, which the next clause would replace.
        raise
    except ValueError:
        raise BadQuestion("the number has more digits than any Kafka type allows") from None
    if not isinstance(parsed, dict):
        raise BadQuestion("not a JSON object")
    return cast("Question", parsed)


def _reject_constant(name: str) -> object:
    """Raise BadQuestion for NaN, Infinity and -Infinity, which Python's parser accepts by default."""
    raise BadQuestion(f'not JSON: {name}; write it as the string "{name}"')


_parse = json.JSONDecoder(parse_constant=_reject_constant).decode


def decode(question: Question) -> Answer:
    """Decode the bytes of a message to its JSON form."""
    cls, version = _message_and_version(question)
    return {"json": to_json(cls.decode(get_hex(question), version), version)}


def encode(question: Question) -> Answer:
    """Encode the JSON form of a message to bytes."""
    cls, version = _message_and_version(question)
    return {"hex": from_json(cls, get_typed(question, "json", dict), version).encode(version).hex()}


# The maximum number of records in one answer. An answer with this many records takes about 200 MB.
MOST_ROWS = 200_000


def decode_records(question: Question) -> Answer:
    """Decode a record set. If a complete batch is invalid, `valid` is false and `error` is the reason.

    If the question names an internal topic of Kafka as its `topic`, rows also have `keyMessage` and
    `valueMessage`. A row whose key or value cannot be decoded has `messageError` instead of both.

    Raises BadQuestion for more than `MOST_ROWS` records, because one answer would contain all of them.
    """
    batch_entries: list[Answer] = []
    rows: list[Answer] = []
    data = get_hex(question)
    topic = get_typed(question, "topic", str) if "topic" in question else None
    if topic is not None and topic not in RECORDS_OF:
        raise BadQuestion(f"the topic {topic!r} is not one of {', '.join(RECORDS_OF)}")
    try:
        for batch in batches(data):
            batch_rows: list[Answer] = []
            for records in record_lists(batch, 1000):
                for record in records:
                    row = _record_to_row(record, batch.timestamp_type)
                    if topic is not None and not batch.is_control:
                        row |= _internal_messages(topic, record)
                    batch_rows.append(row)
                if len(rows) + len(batch_rows) > MOST_ROWS:
                    raise BadQuestion(
                        f"more than {MOST_ROWS} records; split the record set at a batch boundary"
                    )
            batch_entries.append(
                {
                    "baseOffset": batch.base_offset,
                    "lastOffset": batch.last_offset,
                    "magic": batch.magic,
                    "compression": batch.compression,
                    "timestampType": batch.timestamp_type,
                    "maxTimestamp": batch.max_timestamp,
                    "producerId": batch.producer_id,
                    "producerEpoch": batch.producer_epoch,
                    "baseSequence": batch.base_sequence,
                    "isTransactional": batch.is_transactional,
                    "isControl": batch.is_control,
                    "partitionLeaderEpoch": batch.partition_leader_epoch,
                    "deleteHorizonMs": batch.delete_horizon_ms,
                    "count": len(batch_rows),
                }
            )
            rows += batch_rows
    except RecordError as error:
        return {"valid": False, "batches": batch_entries, "rows": rows, "error": str(error)}
    return {"valid": True, "batches": batch_entries, "rows": rows}


def _internal_messages(topic: str, record: Record) -> Answer:
    """Return a row's entries for the decoded key and value, or a `messageError` entry."""
    try:
        decoded = decode_internal(topic, record.key, record.value)
    except DecodeError as error:
        return {"messageError": str(error)}
    return {f"{part}Message": message and message.to_json() for part, message in decoded._asdict().items()}


def encode_records(question: Question) -> Answer:
    """Encode batches of magic 2. Each contains as many of the next rows as its `count` says."""
    rows = [_row_to_record(row, index) for index, row in enumerate(get_typed(question, "rows", list))]
    encoded: list[bytes] = []
    used = 0
    for index, batch in enumerate(get_typed(question, "batches", list)):
        if not isinstance(batch, Mapping):
            raise BadQuestion(f"batches[{index}] is not an object")
        fields = cast("Question", batch)
        count = _integer(fields, "count", 32, f"batches[{index}].")
        if count < 0 or used + count > len(rows):
            raise BadQuestion(f"batches[{index}].count is {count}, but {len(rows) - used} rows are left")
        encoded.append(_encode_batch_entry(fields, rows[used : used + count], index))
        used += count
    if used != len(rows):
        raise BadQuestion(f"the batches' counts add up to {used}, but there are {len(rows)} rows")
    return {"hex": b"".join(encoded).hex()}


# ---- Parts of a line.


def _message_and_version(question: Question) -> tuple[type[Message], int]:
    """Return the class and the version of the message that the question names."""
    name, kind = get_typed(question, "name", str), get_typed(question, "kind", str)
    try:
        cls, known_kind, known_key = message_class(name), kind_of(name), key_of(name)
    except KeyError:
        raise BadQuestion(no_message(name)) from None
    if kind != known_kind:
        raise BadQuestion(f"{name} is of the kind {known_kind!r}, not {kind!r}")
    if known_key is not None and "api_key" in question and question["api_key"] != known_key:
        label = "type" if kind == "record" else "API key"
        raise BadQuestion(f"{name} has the {label} {known_key}, not {short_json(question['api_key'])}")
    return cls, get_typed(question, "version", int)


_TYPE_DESCRIPTIONS = {
    str: "text",
    int: "a whole number",
    dict: "an object",
    list: "a list",
    bool: "true or false",
}


def get_typed(question: Question, key: str, kind: type, where: str = "") -> Any:
    """Return the value of a key. Raises BadQuestion for a missing key, and for a value that is not a `kind`.

    `where` is a prefix for error messages.
    """
    if key not in question:
        raise BadQuestion(f"the key {where + key!r} is missing")
    value = question[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadQuestion(f"{where}{key} is {short_json(value)}, not {_TYPE_DESCRIPTIONS[kind]}")
    return value


def _integer(question: Question, key: str, bits: int, where: str) -> int:
    """Return an integer as `get_typed` does. Raises BadQuestion if it does not fit into `bits` bits."""
    value: int = get_typed(question, key, int, where)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise BadQuestion(f"{where}{key} is {short_json(value)}, which does not fit into int{bits}")
    return value


def short_json(value: object) -> str:
    """Return the value as JSON of at most 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def get_hex(question: Question, key: str = "hex", where: str = "") -> bytes:
    """Return the bytes that a key's hex digits encode. Raises BadQuestion for any other value."""
    text: str = get_typed(question, key, str, where)
    try:
        return bytes.fromhex(text)
    except ValueError:
        if invalid := re.search(r"[^0-9A-Fa-f\s]", text):
            reason = f"{invalid[0]!r} at {invalid.start()} is no digit"
        else:
            reason = f"{len(text)} digits, so half a byte"
        raise BadQuestion(f"{where}{key}: {reason}") from None


def _record_to_row(record: Record, timestamp_type: str) -> Answer:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": timestamp_type,
        "key": _encode_base64(record.key),
        "value": _encode_base64(record.value),
        "headers": [[name, _encode_base64(value)] for name, value in record.headers],
    }


def _row_to_record(row: object, index: int) -> Record:
    if not isinstance(row, Mapping):
        raise BadQuestion(f"rows[{index}] is not an object")
    where = f"rows[{index}]."
    fields = known_keys(cast("Question", row), _ROW_KEYS, where)
    headers: list[tuple[str, bytes | None]] = []
    for pair in get_typed(fields, "headers", list, where):
        match pair:
            case [str(name), value]:
                headers.append(
                    (_check_utf8(name, where), _decode_base64(cast("object", value), f"{where}headers"))
                )
            case _:
                raise BadQuestion(f"{where}headers is not a list of pairs [text, base64 or null]")
    return Record(
        offset=_integer(fields, "offset", 64, where),
        timestamp=_integer(fields, "timestamp", 64, where),
        key=_decode_base64(fields.get("key"), f"{where}key"),
        value=_decode_base64(fields.get("value"), f"{where}value"),
        headers=tuple(headers),
    )


# The integers of a batch: JSON key -> (argument of `encode_batch`, size in bits).
_BATCH_INTEGERS = {
    "baseOffset": ("base_offset", 64),
    "lastOffset": ("last_offset", 64),
    "maxTimestamp": ("max_timestamp", 64),
    "producerId": ("producer_id", 64),
    "producerEpoch": ("producer_epoch", 16),
    "baseSequence": ("base_sequence", 32),
    "partitionLeaderEpoch": ("partition_leader_epoch", 32),
}
_BATCH_DEFAULTS = {
    "magic": 2,
    "compression": "none",
    "timestampType": "CreateTime",
    "producerId": -1,
    "producerEpoch": -1,
    "baseSequence": -1,
    "isTransactional": False,
    "isControl": False,
    "partitionLeaderEpoch": -1,
    "deleteHorizonMs": None,
}
_BATCH_KEYS = {*_BATCH_INTEGERS, *_BATCH_DEFAULTS, "count"}
_ROW_KEYS = {"offset", "timestamp", "timestampType", "key", "value", "headers"}


def _encode_batch_entry(fields: Question, records: Sequence[Record], index: int) -> bytes:
    """Encode an entry of `batches` with its records. `index` is the entry's index in `batches`."""
    where = f"batches[{index}]."
    fields = {**_BATCH_DEFAULTS, **known_keys(fields, _BATCH_KEYS, where)}
    if (magic := get_typed(fields, "magic", int, where)) != 2:
        raise BadQuestion(f"{where}magic is {magic}, but only magic 2 can be encoded")
    integers = {name: _integer(fields, key, bits, where) for key, (name, bits) in _BATCH_INTEGERS.items()}
    has_no_horizon = fields["deleteHorizonMs"] is None
    try:
        return encode_batch(
            records,
            **integers,
            compression=get_typed(fields, "compression", str, where),
            timestamp_type=get_typed(fields, "timestampType", str, where),
            is_transactional=get_typed(fields, "isTransactional", bool, where),
            is_control=get_typed(fields, "isControl", bool, where),
            delete_horizon_ms=None if has_no_horizon else _integer(fields, "deleteHorizonMs", 64, where),
        )
    except (EncodeError, ConfigError) as error:
        raise BadQuestion(f"batches[{index}]: {error}") from None


def known_keys(fields: Question, keys: Collection[str], where: str) -> Question:
    """Return the object unchanged. Raise BadQuestion for an unknown key, because it may be mistyped."""
    for key in fields:
        if key not in keys:
            raise BadQuestion(f"{where}{key} is not a known key. Allowed: {', '.join(sorted(keys))}")
    return fields


def _check_utf8(name: str, where: str) -> str:
    """Return the header name unchanged. Raises BadQuestion if it cannot be encoded as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise BadQuestion(f"{where}headers: {name!r} cannot be encoded as UTF-8: {error.reason}") from None
    return name


def _encode_base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode_base64(text: object, where: str) -> bytes | None:
    """Return the bytes of a base64 text, or None for null. Raises BadQuestion for other values."""
    if text is None:
        return None
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise BadQuestion(f"{where} is {short_json(text)}, not base64 or null")
