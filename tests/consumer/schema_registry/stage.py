"""A schema registry in memory, which serves and records the requests of serializers and deserializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


class RegistryServer:
    """A registry's subjects and schemas. A schema has the same id under each subject."""

    def __init__(self) -> None:
        self.url = ""
        self.schemas: list[dict[str, Any]] = []  # The schema with id N is at index N - 1.
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.logins: set[str | None] = set()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        self.requests.append(f"{method} {path}")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match (method, *parts):
            case ("GET", "schemas", "ids", number) if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ("GET", "subjects", subject, "versions", version) if subject in self.subjects:
                ids = self.subjects[subject]
                index = len(ids) if version == "latest" else int(version)
                if 0 < index <= len(ids):
                    schema_id = ids[index - 1]
                    return 200, {
                        "subject": subject,
                        "version": index,
                        "id": schema_id,
                        **self.schemas[schema_id - 1],
                    }
            case ("POST", "subjects", subject, "versions"):
                schema_id = self.register(subject, body)
                return 200, {"id": schema_id, "version": len(self.subjects[subject]), "subject": subject}
            case ("POST", "subjects", subject) if _definition(body) in self.schemas:
                schema_id = self.schemas.index(_definition(body)) + 1
                if schema_id in self.subjects.get(subject, []):
                    version = self.subjects[subject].index(schema_id) + 1
                    return 200, {"id": schema_id, "version": version, "subject": subject, **_definition(body)}
            case _:
                pass
        return 404, {"error_code": 40403, "message": "Schema not found."}

    def register(self, subject: str, body: dict[str, Any]) -> int:
        definition = _definition(body)
        if definition not in self.schemas:
            self.schemas.append(definition)
        schema_id = self.schemas.index(definition) + 1
        ids = self.subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return schema_id


def _definition(body: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in the registry's normal form: for example, `"string"` for `{"type": "string"}`."""
    kind = body.get("schemaType", "AVRO")
    schema = json.loads(body["schema"]) if kind == "AVRO" else None
    if isinstance(schema, dict) and set(schema) == {"type"}:
        body = {**body, "schema": json.dumps(schema["type"])}
    schema = {name: body[name] for name in ("schema", "references") if body.get(name)}
    return schema | ({"schemaType": kind} if kind != "AVRO" else {})


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            registry.logins.add(self.headers.get("Authorization"))
            status, answer = registry.answer(self.command, urlsplit(self.path).path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
