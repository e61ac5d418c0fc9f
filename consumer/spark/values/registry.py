"""A client of Confluent's schema registry: schemas by id (`wire_format`) or by subject.

The schema of an id never changes, so each process requests it once.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlsplit

from kproto.errors import ConfigError, KprotoError

from .names import REGISTRY_URL, REGISTRY_USER

TRIES, PAUSE_S, TIMEOUT_S = 4, 0.5, 10.0


class RegistryFailed(KprotoError, OSError):
    """The error that the registry cannot be reached or rejects a request for `schema`."""

    def __init__(self, schema: str, reason: str) -> None:
        super().__init__(schema, reason)
        self.schema, self.reason = schema, reason

    def __str__(self) -> str:
        return f"{self.schema}: {self.reason}; check {REGISTRY_URL} and {REGISTRY_USER}"


class NoSuchSchema(RegistryFailed):
    """The error that the registry does not have the schema."""

    def __str__(self) -> str:
        return f"{self.schema}: {self.reason}; check {REGISTRY_URL}, and value.subject or key.subject"


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema. `names` maps each name that it uses for another schema to that schema."""

    text: str
    kind: str
    names: Mapping[str, Schema]


@dataclass(frozen=True, slots=True, repr=False)
class Registry:
    """A client of a registry: its addresses and NAME:PASSWORD. No repr or error has the password."""

    urls: tuple[str, ...]
    user: str | None = None

    def __repr__(self) -> str:
        return f"Registry({', '.join(self.urls)})"

    def schema(self, number: int, form: str = "") -> Schema:
        """Return the schema of an id. Raises NoSuchSchema, RegistryFailed."""
        key = (self.urls, number, form)
        if key not in _known:
            answer = self._get(f"schemas/ids/{number}{_format(form)}", f"schema {number}")
            _known[key] = self._read(answer, form)
        return _known[key]

    def latest(self, subject: str, form: str = "") -> Schema:
        """Return the newest schema of a subject. Raises NoSuchSchema, RegistryFailed."""
        path = f"subjects/{quote(subject, safe='')}/versions/latest{_format(form)}"
        return self._read(self._get(path, f"the latest schema of {subject}"), form)

    def _read(self, answer: dict[str, Any], form: str) -> Schema:
        """Return the schema in a response, after requesting the schemas to which it refers."""
        names: dict[str, Schema] = {}
        for reference in cast("list[dict[str, Any]]", answer.get("references") or []):
            subject = quote(reference["subject"], safe="")
            path = f"subjects/{subject}/versions/{reference['version']}{_format(form)}"
            names[reference["name"]] = self._read(
                self._get(path, f"{reference['subject']} {reference['version']}"), form
            )
        return Schema(str(answer["schema"]), str(answer.get("schemaType") or "AVRO").upper(), names)

    def _get(self, path: str, schema: str) -> dict[str, Any]:
        """Send a request to each address in turn. Repeat this if all fail, because the registry may be
        restarting.
        """
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S * attempt)
            for url in self.urls:
                request = urllib.request.Request(f"{url}/{path}")
                request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
                if self.user is not None:
                    request.add_header(
                        "Authorization", f"Basic {base64.b64encode(self.user.encode()).decode()}"
                    )
                try:
                    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                        return cast("dict[str, Any]", json.load(answer))
                except urllib.error.HTTPError as error:
                    reason = f"{url} answers {error.code} {error.reason}{_reason(error)}"
                    if error.code == 404:
                        raise NoSuchSchema(schema, reason) from None
                    if error.code < 500 and error.code != 429:
                        raise RegistryFailed(schema, reason) from None
                except (OSError, ValueError) as error:
                    reason = f"{url}: {error}"
        raise RegistryFailed(schema, reason)


_known: dict[tuple[tuple[str, ...], int, str], Schema] = {}


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the registry's error message from the body of an HTTP error."""
    try:
        return f": {json.loads(error.read(10_000))['message']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _format(form: str) -> str:
    """Return the query string of a schema request. It selects the form that the format can parse."""
    return f"?format={form}" if form else ""


def registry(options: Mapping[str, str]) -> Registry | None:
    """Return the registry that the options name, or None. Raises ConfigError."""
    text, user = options.get(REGISTRY_URL), options.get(REGISTRY_USER)
    if text is None:
        if user is not None:
            raise ConfigError(REGISTRY_USER, "(given)", f"set {REGISTRY_URL} as well")
        return None
    urls: list[str] = []
    for url in (address.strip().rstrip("/") for address in text.split(",")):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                REGISTRY_URL,
                url,
                "allowed: http://HOST:PORT or https://HOST:PORT, several separated by commas",
            )
        if parts.username is not None:
            raise ConfigError(
                REGISTRY_URL,
                f"{parts.scheme}://...@{parts.hostname}",
                f"remove the name and the password, and set {REGISTRY_USER}",
            )
        urls.append(url)
    if user is not None and ":" not in user:
        raise ConfigError(REGISTRY_USER, "(hidden)", "allowed: NAME:PASSWORD")
    return Registry(tuple(urls), user)
