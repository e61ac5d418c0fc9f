"""JSON in, JSON out, one object per line: what `kproto decode --json` and `kproto encode --json` answer.

A question says which bytes it means; `kproto.messages.json_form` says how a message looks as JSON.

    messages   {"kind", "name", "api_key", "version", "hex"}   ->  {"json": {...}}      decode
               {"kind", "name", "api_key", "version", "json"}  ->  {"hex": "..."}       encode
    records    {"hex"}                                         ->  {"valid", "batches", "rows"}
               {"batches", "rows"}                             ->  {"hex": "..."}

`kind` is request, response, header, data or record; `name` is Kafka's name of the message. The bytes are the
body alone: no size, no header, and for data and records no int16 version in front. In a line that can't be
answered, the answer is {"error": "why"}, and the next line is answered all the same.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from .errors import EncodeError, KprotoError, RecordError
from .messages.index import kind_of, message_class
from .messages.json_form import from_json, to_json
from .records.batch import batches, encode_batch
from .records.record import Record
from .wire.message import Message

Question = Mapping[str, Any]
Answer = dict[str, Any]


class BadQuestion(KprotoError, ValueError):
    """A line that is not a question of the form above; the text says what is wrong with it."""


def answers(lines: Iterable[str], answer: Callable[[Question], Answer]) -> Iterator[str]:
    """One line for each line that isn't blank; an error answers its own line only."""
    for line in lines:
        if line.strip():
            try:
                question = json.loads(line)
                if not isinstance(question, dict):
                    raise BadQuestion("not a JSON object")
                told = answer(cast("Question", question))
            except (KprotoError, json.JSONDecodeError, RecursionError) as error:
                told = {
                    "error": f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
                }
            yield json.dumps(told, ensure_ascii=False)


def decode(question: Question) -> Answer:
    """The JSON form of a message's bytes."""
    cls, version = _message(question)
    return {"json": to_json(cls.decode(_hex(question), version), version)}


def encode(question: Question) -> Answer:
    """The bytes of a message's JSON form."""
    cls, version = _message(question)
    return {"hex": from_json(cls, _get(question, "json", dict), version).encode(version).hex()}


def decode_records(question: Question) -> Answer:
    """What a records field holds; `valid` is false, and `error` says why, when a complete batch is broken."""
    told: list[Answer] = []
    rows: list[Answer] = []
    data = _hex(question)
    try:
        for batch in batches(data):
            records = batch.records()
            told.append(
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
                    "count": len(records),
                }
            )
            rows += [_row(record, batch.timestamp_type) for record in records]
    except RecordError as error:
        return {"valid": False, "batches": told, "rows": rows, "error": str(error)}
    return {"valid": True, "batches": told, "rows": rows}


def encode_records(question: Question) -> Answer:
    """The bytes of batches of magic 2; each batch takes the next `count` of the rows."""
    rows = [_record(row, index) for index, row in enumerate(_get(question, "rows", list))]
    out: list[bytes] = []
    at = 0
    for index, batch in enumerate(_get(question, "batches", list)):
        if not isinstance(batch, Mapping):
            raise BadQuestion(f"batches[{index}] is not an object")
        told = cast("Question", batch)
        count = _get(told, "count", int)
        if count < 0 or at + count > len(rows):
            raise BadQuestion(f"batches[{index}].count is {count}, but {len(rows) - at} rows are left")
        out.append(_batch(told, rows[at : at + count], index))
        at += count
    if at != len(rows):
        raise BadQuestion(f"the batches count {at} rows, but there are {len(rows)}")
    return {"hex": b"".join(out).hex()}


# Parts


def _message(question: Question) -> tuple[type[Message], int]:
    name, kind = _get(question, "name", str), _get(question, "kind", str)
    try:
        cls = message_class(name)
    except KeyError:
        raise BadQuestion(f"Kafka 4.3 has no message {name!r}") from None
    if kind != kind_of(name):
        raise BadQuestion(f"{name} is of the kind {kind_of(name)!r}, not {kind!r}")
    key = question.get("api_key", cls.__api_key__)
    if key != cls.__api_key__ and kind in ("request", "response"):
        raise BadQuestion(f"{name} has the API key {cls.__api_key__}, not {key}")
    return cls, _get(question, "version", int)


def _get(question: Question, key: str, kind: type) -> Any:
    if key not in question:
        raise BadQuestion(f"the key {key!r} is missing")
    value = question[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "text", int: "a whole number", dict: "an object", list: "a list", bool: "true or false"}
        raise BadQuestion(f"{key} is {json.dumps(value)[:60]}, not {words[kind]}")
    return value


def _hex(question: Question) -> bytes:
    try:
        return bytes.fromhex(_get(question, "hex", str))
    except ValueError as error:
        raise BadQuestion(f"hex: {error}") from None


def _row(record: Record, timestamp_type: str) -> Answer:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": timestamp_type,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _record(row: object, index: int) -> Record:
    if not isinstance(row, Mapping):
        raise BadQuestion(f"rows[{index}] is not an object")
    told = cast("Question", row)
    headers: list[tuple[str, bytes | None]] = []
    for pair in _get(told, "headers", list):
        match pair:
            case [str(name), value]:
                headers.append((name, _bytes(cast("object", value), f"rows[{index}].headers")))
            case _:
                raise BadQuestion(f"rows[{index}].headers is not a list of [text, base64 or null]")
    return Record(
        offset=_get(told, "offset", int),
        timestamp=_get(told, "timestamp", int),
        key=_bytes(told.get("key"), f"rows[{index}].key"),
        value=_bytes(told.get("value"), f"rows[{index}].value"),
        headers=tuple(headers),
    )


def _batch(told: Question, records: Sequence[Record], index: int) -> bytes:
    if (magic := told.get("magic", 2)) != 2:
        raise EncodeError(
            "RecordBatch", -1, "magic", f"batches[{index}] has magic {magic}; only 2 is written"
        )
    horizon = told.get("deleteHorizonMs")
    return encode_batch(
        records,
        base_offset=_get(told, "baseOffset", int),
        last_offset=_get(told, "lastOffset", int),
        compression=told.get("compression", "none"),
        timestamp_type=told.get("timestampType", "CreateTime"),
        max_timestamp=_get(told, "maxTimestamp", int),
        producer_id=told.get("producerId", -1),
        producer_epoch=told.get("producerEpoch", -1),
        base_sequence=told.get("baseSequence", -1),
        is_transactional=told.get("isTransactional", False),
        is_control=told.get("isControl", False),
        partition_leader_epoch=told.get("partitionLeaderEpoch", -1),
        delete_horizon_ms=horizon,
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: object, where: str) -> bytes | None:
    if text is None:
        return None
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise BadQuestion(f"{where} is {str(text)[:60]!r}, not base64 or null")
