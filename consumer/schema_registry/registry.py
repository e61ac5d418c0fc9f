"""A client of Confluent's schema registry.

The client gets schemas by id (see `wire_format`) or by subject, and registers new schemas.

The schema of an id never changes, so each process caches it.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import quote, urlsplit
from uuid import UUID

from kproto.errors import ConfigError, KprotoError
from kproto.http import HttpFailed, Response, is_http_address, request
from kproto.printable import escape_unprintable

from ..security.option_names import mask_secret
from ..security.secret import HIDDEN

# The id of a schema: a number that the registry has assigned, or a GUID.
SchemaId: TypeAlias = int | UUID

# The number of tries for each address, and the time (s) before the second try. Each further wait is longer by
# this time.
TRIES, PAUSE_S = 4, 0.5
MAX_REDIRECTS: Final = 5
# The size limit of a registry's response: 16 MiB. A registry keeps its schemas in Kafka's records, whose size
# is at most 1 MiB by default.
MAX_SCHEMA_BYTES: Final = 16 << 20
# The maximum length of a chain of schemas in which each schema refers to the next one.
MAX_DEPTH: Final = 100
# The maximum length, in characters, of a registry's message that an error quotes.
MAX_MESSAGE: Final = 300


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The names, in error messages, of the options for the addresses, the login and the subject."""

    url: str = "url"
    user: str = "user"
    subject: str = "the subject"


class RegistryFailed(KprotoError, OSError):
    """Raised if the registry cannot be reached or rejects a request for `schema`."""

    def __init__(self, schema: str, reason: str, names: OptionNames = OptionNames()) -> None:
        super().__init__(schema, reason, names)
        self.schema, self.reason, self.names = schema, reason, names

    def text(self) -> str:
        return f"{self.schema}: {self.reason}; check {self.names.url} and {self.names.user}"


class NoSuchSchema(RegistryFailed):
    """Raised if the registry does not have the schema."""

    def text(self) -> str:
        return f"{self.schema}: {self.reason}; check {self.names.url}, and {self.names.subject}"


class NoSuchReference(NoSuchSchema):
    """Raised if the registry does not have a schema to which another schema refers.

    `schema` is the path to the missing schema: the schema that was requested, and then each reference down to
    the missing one.
    """

    def text(self) -> str:
        return f"{self.schema}: {self.reason}; register the last schema, or correct the reference to it"


class InvalidReferences(RegistryFailed):
    """Raised if the references of a schema cannot be resolved, for example because they form a cycle.

    `schema` is the path from the requested schema to the place of the error, as in `NoSuchReference`.
    """

    def text(self) -> str:
        return f"{self.schema}: {self.reason}; correct the references in the registry"


class Reference(NamedTuple):
    """A reference to a registered schema: the version `version` of `subject`.

    `name` is the name under which the referring schema refers to the registered schema.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema. `names` maps the names of its references to the referenced schemas.

    If several references have the same name, the name means the first one, as in Java's
    AbstractSchemaProvider.
    """

    text: str
    kind: str
    names: Mapping[str, Schema]

    def references(self) -> Iterator[tuple[str, Schema]]:
        """Yield the schemas to which this schema refers, each once and after its own references.

        If several of these references have the same name but different schemas, only the schema that is found
        first is yielded. The search is depth-first: a reference, then the references of its schema, and then
        the next reference.
        """
        requested: set[str] = set()

        def visit(schema: Schema) -> Iterator[tuple[str, Schema]]:
            for name, reference in schema.names.items():
                if name not in requested:
                    requested.add(name)
                    yield from visit(reference)
                    yield name, reference

        return visit(self)


@dataclass(frozen=True, slots=True, repr=False)
class Registry:
    """A client of a registry.

    `urls` are the registry's addresses. `user` is NAME:PASSWORD. `names` are the names of these options in
    errors. No repr and no error contains the password.
    """

    urls: tuple[str, ...]
    user: str | None = None
    names: OptionNames = OptionNames()

    @classmethod
    def at(cls, url: str, user: str | None = None, names: OptionNames = OptionNames()) -> Registry:
        """Return a client of the registry at `url`.

        `url` is http://HOST:PORT, or several addresses separated by commas. `user` is NAME:PASSWORD. No
        request is sent. Raises ConfigError if `url` or `user` is invalid.
        """
        urls: list[str] = []
        for address in (part.strip().rstrip("/") for part in url.split(",")):
            if not is_http_address(address):
                raise ConfigError(
                    names.url,
                    mask_secret("schema.registry.url", address),
                    "allowed: http://HOST:PORT or https://HOST:PORT, several separated by commas",
                )
            parts = urlsplit(address)
            if parts.username is not None:
                raise ConfigError(
                    names.url,
                    f"{parts.scheme}://...@{parts.hostname}",
                    f"remove the name and the password, and set {names.user}",
                )
            urls.append(address)
        if user is not None and ":" not in user:
            raise ConfigError(names.user, "(hidden)", "allowed: NAME:PASSWORD")
        return cls(tuple(urls), user, names)

    def __repr__(self) -> str:
        shown = (f"{url.partition('?')[0]}?{HIDDEN}" if "?" in url else url for url in self.urls)
        return f"Registry({', '.join(shown)})"

    def schema(self, schema_id: SchemaId, form: str = "") -> Schema:
        """Return the schema with this id or GUID. Each schema is requested once per process.

        Raises NoSuchSchema if the registry does not have the schema. Raises RegistryFailed if the registry
        cannot be reached or rejects the request.
        """
        key = (self.urls, schema_id, form)
        if key not in _schemas:
            collection = "ids" if isinstance(schema_id, int) else "guids"
            path = f"schemas/{collection}/{schema_id}{_format_query(form)}"
            description = f"schema {schema_id}"
            _schemas[key] = _SchemaReader(self, form).read(self.get(path, description), description)
        return _schemas[key]

    def latest(self, subject: str, form: str = "") -> Schema:
        """Return the newest schema of a subject.

        Raises NoSuchSchema if the subject has no schema. Raises RegistryFailed if the registry cannot be
        reached or rejects the request.
        """
        path = f"subjects/{quote(subject, safe='')}/versions/latest{_format_query(form)}"
        description = f"the latest schema of {subject}"
        return _SchemaReader(self, form).read(self.get(path, description), description)

    def parse(self, text: str, references: Sequence[Reference] = (), kind: str = "AVRO") -> Schema:
        """Return the schema that `text` defines, with the registered schemas to which it refers.

        The schema itself need not be registered. Raises NoSuchSchema if a reference is not registered, and
        RegistryFailed if the registry cannot be reached or rejects the request.
        """
        return _SchemaReader(self, "").read(_definition(text, references, kind), "the schema")

    def id_of(
        self,
        subject: str,
        schema: str,
        references: Sequence[Reference] = (),
        *,
        kind: str = "AVRO",
        register: bool = False,
        normalize: bool = False,
    ) -> int:
        """Return the id of a schema under a subject. `schema` is the schema's text, and `kind` its type.

        With `register`, a schema that the subject does not have is registered as its newest version. Without
        `register`, NoSuchSchema is raised for such a schema.

        Raises RegistryFailed if the registry rejects the request, for example because the schema is
        incompatible with the subject's other versions.
        """
        definition = _definition(schema, references, kind)
        return self._post_schema(
            subject, definition, register=register, normalize=normalize, response_field="id"
        )

    def version_of(
        self,
        subject: str,
        schema: str,
        references: Sequence[Reference] = (),
        *,
        kind: str = "AVRO",
        register: bool = False,
        normalize: bool = False,
    ) -> int:
        """Return the version of a schema under a subject.

        The method has the same arguments as `id_of`, and raises the same errors.
        """
        definition = _definition(schema, references, kind)
        if register:  # The response to a registration contains the version only since Confluent Platform 7.
            self._post_schema(subject, definition, register=True, normalize=normalize, response_field="id")
        return self._post_schema(
            subject, definition, register=False, normalize=normalize, response_field="version"
        )

    def _post_schema(
        self,
        subject: str,
        definition: dict[str, Any],
        *,
        register: bool,
        normalize: bool,
        response_field: str,
    ) -> int:
        """Look up a schema under a subject, or register it if `register` is true.

        Returns the number in the field `response_field` of the response.
        """
        path = f"subjects/{quote(subject, safe='')}" + ("/versions" if register else "")
        query = f"?normalize={'true' if normalize else 'false'}"
        body = json.dumps(definition).encode()
        response = self._request("POST", f"{path}{query}", f"the schema of {subject}", response_field, body)
        return int(response[response_field])

    def latest_id(self, subject: str, form: str = "") -> tuple[int, Schema]:
        """Return the id of a subject's newest schema, and the schema. Raises the errors of `latest`."""
        path = f"subjects/{quote(subject, safe='')}/versions/latest{_format_query(form)}"
        description = f"the latest schema of {subject}"
        response = self._request("GET", path, description, "id")
        return int(response["id"]), _SchemaReader(self, form).read(response, description)

    def get(self, path: str, schema: str) -> dict[str, Any]:
        """Return the registry's response to a request for `schema`: a JSON object that contains the schema.

        Raises NoSuchSchema if the registry does not have the schema. Raises RegistryFailed if an address
        rejects the request, or if no address returns the schema.
        """
        return self._request("GET", path, schema, "schema")

    def _request(
        self, method: str, path: str, schema: str, response_field: str, body: bytes | None = None
    ) -> dict[str, Any]:
        """Return the registry's response, a JSON object that contains the field `response_field`.

        The addresses are tried in turn until one returns the field. If all addresses fail, they are tried
        again, up to `TRIES` times in total, because the registry may be restarting.

        Raises NoSuchSchema if the registry does not have the schema. Raises RegistryFailed if an address
        rejects the request, or if no address returns `response_field`.
        """
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self.user is not None:
            headers["Authorization"] = f"Basic {self._credentials}"
        field_type = str if response_field == "schema" else int
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S * attempt)
            for url in self.urls:
                try:
                    response = request(
                        method, f"{url}/{path}", feature=self.names.url, headers=headers, body=body,
                        redirects=MAX_REDIRECTS, max_bytes=MAX_SCHEMA_BYTES,
                    )  # fmt: skip
                    content = response.json_object() if response.status == 200 else {}
                    if isinstance(content.get(response_field), field_type):
                        return content
                except HttpFailed as error:
                    reason = str(error)
                    continue
                except ValueError as error:
                    reason = f"{url}: {error}"
                    continue
                failure = _failure(response, f"{url}/{path}", self.names)
                reason = self._without_login(f"{url} answers {failure}")
                if response.status == 404:
                    raise NoSuchSchema(schema, reason, self.names)
                if response.status < 500 and response.status not in (200, 429):
                    raise RegistryFailed(schema, reason, self.names)
        raise RegistryFailed(schema, reason, self.names)

    @property
    def _credentials(self) -> str:
        """Return the name and the password, encoded for the header Authorization."""
        return base64.b64encode((self.user or "").encode()).decode()

    def _without_login(self, text: str) -> str:
        """Return the text without the login and the password, which a registry may repeat in its response."""
        if self.user is not None:
            for secret in (self._credentials, self.user, self.user.partition(":")[2]):
                text = text.replace(secret, "(hidden)") if secret else text
        return text


@dataclass(slots=True)
class _SchemaReader:
    """Reads a schema, and requests the schemas to which it refers.

    Each version of a subject is requested once.
    """

    registry: Registry
    form: str
    # The schemas that have been requested, by (subject, version).
    schemas: dict[tuple[str, str], Schema] = field(default_factory=dict[tuple[str, str], "Schema"])

    def read(
        self, response: dict[str, Any], description: str, path: tuple[tuple[str, str], ...] = ()
    ) -> Schema:
        """Return a response's schema, after requesting all schemas to which this schema refers.

        `path` lists the references from the first schema to this one, as (subject, version). `description`
        describes this path in errors. Raises InvalidReferences, NoSuchReference and RegistryFailed.
        """
        names: dict[str, Schema] = {}
        references: object = response.get("references") or []
        if not isinstance(references, list):
            reason = f"the references must be a list, not {references!r:.{MAX_MESSAGE}}"
            raise InvalidReferences(description, reason, self.registry.names)
        for reference in cast("list[object]", references):
            name, subject, version = self._reference_fields(reference, description)
            key = (subject, version)
            target = f"{subject} version {version}"
            path_to_target = f"{description} -> {target}"
            if key in path:
                reason = "the schemas refer to each other in a cycle"
                raise InvalidReferences(path_to_target, reason, self.registry.names)
            if len(path) >= MAX_DEPTH:
                first = description.split(" -> ")[0]
                raise InvalidReferences(
                    f"{first} -> ... -> {target}",
                    f"the last schema is more than {MAX_DEPTH} references away from the first one",
                    self.registry.names,
                )
            if key not in self.schemas:
                target_response = self._get_version(subject, version, path_to_target)
                self.schemas[key] = self.read(target_response, path_to_target, (*path, key))
            names.setdefault(name, self.schemas[key])
        return Schema(str(response["schema"]), str(response.get("schemaType") or "AVRO").upper(), names)

    def _reference_fields(self, reference: object, description: str) -> tuple[str, str, str]:
        """Return the name, subject and version of a reference. Raises InvalidReferences if one is missing."""
        is_object = isinstance(reference, dict)
        values = [cast("Any", reference).get(key) if is_object else None for key in Reference._fields]
        if None in values:
            shown_reference = f"{reference!r:.{MAX_MESSAGE}}"
            reason = f"a reference must have a name, subject and version, not {shown_reference}"
            raise InvalidReferences(description, reason, self.registry.names)
        name, subject, version = map(str, values)
        return name, subject, version

    def _get_version(self, subject: str, version: str, description: str) -> dict[str, Any]:
        """Return the registry's response to a request for a version of a subject.

        Raises NoSuchReference instead of NoSuchSchema, because only references name a version.
        """
        path = f"subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
        try:
            return self.registry.get(f"{path}{_format_query(self.form)}", description)
        except NoSuchSchema as error:
            raise NoSuchReference(error.schema, error.reason, error.names) from None


# The cache of `Registry.schema`: by the registry's addresses, the id and the format.
_schemas: dict[tuple[tuple[str, ...], SchemaId, str], Schema] = {}


def _definition(text: str, references: Sequence[Reference], kind: str) -> dict[str, Any]:
    """Return a schema in the registry's JSON, in which Avro is the default type."""
    definition: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        definition["schemaType"] = kind
    if references:
        definition["references"] = [dict(reference._asdict()) for reference in references]
    return definition


def _failure(response: Response, url: str, names: OptionNames) -> str:
    """Return why a response is a failure: its status, and the registry's error message from the body."""
    if response.status == 200:
        return "without a schema"
    text = f"{response.status} {response.reason}"
    try:
        message = response.json_object().get("message")
    except ValueError:
        message = None
    if isinstance(message, str):
        text += f": {message[:MAX_MESSAGE]}"
    if response.url != url.partition("?")[0]:
        text += f" (redirected to {response.url}; the login is sent only to addresses in {names.url})"
    return escape_unprintable(text)


def _format_query(form: str) -> str:
    """Return the query string that selects the format of the requested schema, or "" for the default."""
    return f"?format={form}" if form else ""
