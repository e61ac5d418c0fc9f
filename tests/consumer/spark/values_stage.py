"""Encode values as on the wire, and decode them as a query does, without a JVM."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from consumer.spark.arrow import Builder
from consumer.spark.options import parse
from consumer.spark.ranges import Range
from consumer.spark.schema import COLUMNS, full_schema
from consumer.spark.values import ColumnFormat
from kproto.records import encode_batch
from kproto.records.record import Record

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def schema(kind: Any, options: dict[str, str], column: str = "value") -> StructType:
    """Return the schema that Spark passes: the column `column` of this type, `offset` and `_error`."""
    fields = StructType().add(column, kind).add("offset", COLUMNS["offset"])
    error = [field for field in full_schema(parse({**SERVERS, **options})).fields if field.name == "_error"]
    return StructType([*fields.fields, *error])


def decoded(
    values: Sequence[bytes | None],
    kind: Any,
    options: dict[str, str],
    column: str = "value",
    formats: Sequence[ColumnFormat] = (),
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = (),
) -> list[dict[str, Any]]:
    """Encode `values` as record values or keys, and return the rows that the source decodes.

    `formats` replaces the formats in the options. `headers` contains the headers of each record.
    """
    rows = [
        Record(n, 0, value if column == "key" else b"", value, tuple(headers[n]) if headers else ())
        for n, value in enumerate(values)
    ]
    parsed = parse({**SERVERS, **options})
    builder = Builder(
        schema(kind, options, column), Range("t", 0, 0, len(rows), None), formats=formats or parsed.formats
    )
    tables = builder.batches(bytes(encode_batch(rows)), (), 0)
    whole = pa.Table.from_batches(list(tables))
    whole.validate(full=True)
    return whole.to_pylist()


def avro(schema: Any, *values: Any) -> list[bytes]:
    """Encode values with fastavro."""
    import fastavro

    parsed, encoded = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for value in values:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, value)
        encoded.append(file.getvalue())
    return encoded


def wired(number: int, value: bytes) -> bytes:
    """Return the value with the header of Confluent's wire format."""
    return b"\0" + number.to_bytes(4, "big") + value


@contextmanager
def registry(answers: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Run a registry with an answer for each path. Yield its address and the requests that it received."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.path} {self.headers.get('Authorization', '')}".strip())
            answer = answers.get(self.path)
            self.send_response(200 if answer else 404)
            self.end_headers()
            self.wfile.write(
                json.dumps(answer or {"error_code": 40403, "message": "Schema not found."}).encode()
            )

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()
