"""Random Avro schemas and values. The source must read what fastavro writes, and reject the bytes that
fastavro rejects.
"""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any

import fastavro
import pyarrow as pa

from consumer.spark.values import avro, avro_resolution, avro_schema

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SIMPLE = ("int", "long", "float", "double", "boolean", "string", "bytes")
LOGICAL = (("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros"))
UNIONS = (["int", "string"], ["null", "int", "string"], ["int", "long"], ["float", "double", "null"])


def kind(node: avro_schema.AvroNode) -> Any:
    """Return the Arrow type of an Avro schema."""
    match node.kind:
        case "union":
            if node.merged is not None:
                return kind(node.merged)
            return pa.struct([(f"member{n}", kind(branch)) for n, branch in enumerate(node.branches)])
        case "record":
            return pa.struct([(field.names[0], kind(field.node)) for field in node.fields])
        case "array":
            return pa.list_(pa.field("element", kind(node.inner[0])))
        case "map":
            return pa.map_(pa.string(), kind(node.inner[0]))
        case _:
            return avro_resolution.scalar_arrow_type(node)


def schema(random: Random, names: Any, depth: int = 0) -> Any:
    """Return a random Avro schema. Types are nested at most four levels deep."""
    deep = ["record", "array", "map", "union", "nullable"] * 2 if depth < 3 else []
    match random.choice([*SIMPLE, "enum", "fixed", "logical", "decimal", *deep]):
        case "enum":
            return {"type": "enum", "name": f"n{next(names)}", "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": f"n{next(names)}", "size": random.randint(1, 5)}
        case "logical":
            plain, logical = random.choice(LOGICAL)
            return {"type": plain, "logicalType": logical}
        case "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
        case "record":
            fields = [schema(random, names, depth + 1) for _ in range(random.randint(1, 4))]
            named = [{"name": f"f{n}", "type": inner} for n, inner in enumerate(fields)]
            return {"type": "record", "name": f"n{next(names)}", "fields": named}
        case "array":
            return {"type": "array", "items": schema(random, names, depth + 1)}
        case "map":
            return {"type": "map", "values": schema(random, names, depth + 1)}
        case "nullable":
            return random.choice([["null", inner := schema(random, names, 3)], [inner, "null"]])
        case "union":
            return random.choice(UNIONS)
        case simple:
            return simple


def value(random: Random, schema: Any) -> tuple[Any, Any]:
    """Return a random value of a schema, once as fastavro writes it and once as the source must read it."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        picked = random.choice(schema)
        if picked == "null":
            return None, None
        written, read = value(random, picked)
        if branches in (["int", "string"],):
            read = {f"member{n}": read if branch == picked else None for n, branch in enumerate(branches)}
        return written, read
    match schema if isinstance(schema, str) else schema.get("logicalType") or schema["type"]:
        case "int":
            result: Any = random.choice([random.randint(-3, 300), -(2**31), 2**31 - 1])
        case "long":
            result = random.choice([random.randint(-(2**20), 2**20), -(2**63), 2**63 - 1, 2**56])
        case "float":
            result = struct.unpack("f", struct.pack("f", random.random()))[0]
        case "double":
            result = random.random()
        case "boolean":
            result = random.random() < 0.5
        case "string":
            result = "äb€" * random.randint(0, 4)
        case "bytes":
            result = random.randbytes(random.randint(0, 6))
        case "enum":
            result = random.choice(schema["symbols"])
        case "fixed":
            result = random.randbytes(schema["size"])
        case "date":
            days = random.randint(-10_000, 30_000)
            return days, datetime.date(1970, 1, 1) + datetime.timedelta(days)
        case "timestamp-millis":
            ms = random.randint(-(10**12), 10**13)
            return ms, EPOCH + datetime.timedelta(milliseconds=ms)
        case "timestamp-micros":
            us = random.randint(-(10**15), 10**16)
            return us, EPOCH + datetime.timedelta(microseconds=us)
        case "decimal":
            result = Decimal(random.randint(-(10**11), 10**11)).scaleb(-3)
        case "record":
            pairs = {field["name"]: value(random, field["type"]) for field in schema["fields"]}
            return {n: w for n, (w, _) in pairs.items()}, {n: r for n, (_, r) in pairs.items()}
        case "array":
            items = [value(random, schema["items"]) for _ in range(random.randint(0, 4))]
            return [w for w, _ in items], [r for _, r in items]
        case _:
            pairs = {f"k{n}": value(random, schema["values"]) for n in range(random.randint(0, 3))}
            return {n: w for n, (w, _) in pairs.items()}, [(n, r) for n, (_, r) in pairs.items()]
    return result, result


def broken(random: Random, written: bytes) -> bytes:
    """Return a malformed copy of an encoded value: with a flipped bit, truncated, or with more bytes."""
    match random.choice(["bit", "cut", "more"]):
        case "bit" if written:
            flipped = bytearray(written)
            flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
            return bytes(flipped)
        case "cut" if written:
            return written[: random.randrange(len(written))]
        case _:
            return written + random.randbytes(random.randint(1, 5))


def check(random: Random) -> None:
    """Check that the source reads random values, and rejects a malformed one if fastavro rejects it."""
    names = count()
    fields = [{"name": f"f{n}", "type": schema(random, names)} for n in range(random.randint(1, 5))]
    top = {"type": "record", "name": "Top", "fields": fields}
    parsed = fastavro.parse_schema(json.loads(json.dumps(top)))
    rows = [value(random, top) for _ in range(random.choice([1, 3, 150]))]
    written: list[bytes] = []
    for row, _ in rows:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, row)
        written.append(file.getvalue())
    node = avro_schema.parse("value.schema", json.dumps(top))
    assert node.ddl.startswith("STRUCT<")
    read = avro._AvroDecoder(node, node, kind(node))
    decoded, bad = read.decode(pa.array(written, pa.binary()))
    decoded.validate(full=True)
    assert not bad
    assert decoded.to_pylist() == [expected for _, expected in rows]

    at = random.randrange(len(written))
    written[at] = broken(random, written[at])
    decoded_again, bad = read.decode(pa.array(written, pa.binary()))
    decoded_again.validate(full=True)
    assert set(bad) <= {at}
    other_rows = [row for row in range(len(written)) if row != at]
    assert decoded_again.take(pa.array(other_rows, pa.int64())).equals(
        decoded.take(pa.array(other_rows, pa.int64()))
    )
    file = io.BytesIO(written[at])
    try:
        fastavro.schemaless_reader(file, parsed, None)
        whole = file.tell() == len(written[at])
    except Exception:  # fastavro raises errors of many classes for malformed values.
        whole = False
    assert whole or at in bad
