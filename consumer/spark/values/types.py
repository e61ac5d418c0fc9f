"""Types that all value formats share: a column's options, and the functions that a format's module has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from ...schema_registry.registry import Registry, Schema

# An Arrow array, typed as Any because pyarrow has no type stubs.
Column: TypeAlias = Any
# The rows whose values cannot be decoded, with the reasons.
Bad: TypeAlias = Mapping[int, str]
# A function that decodes a BinaryArray without nulls into a column of the same length. An invalid value
# becomes null.
Decode: TypeAlias = Callable[[Column], tuple[Column, Bad]]

# Maps a format to the request parameter `format`, which selects the representation in which the registry
# returns a schema.
_SCHEMA_REPRESENTATIONS: Final[Mapping[str, str]] = {"avro": "", "protobuf": "serialized"}


class Format(Protocol):
    """The functions that a format's module defines."""

    def column_type(self, column_format: ColumnFormat) -> str:
        """Return the DDL type of the column. Raises ConfigError if the options do not determine it."""
        ...

    def decoder(self, column_format: ColumnFormat, kind: DataType) -> Decode:
        """Return a function that decodes values into a column of type `kind`.

        Raises ConfigError if a column of this type cannot hold the format's values.
        """
        ...


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The format options of one column, `key` or `value`.

    `latest` is the registry's latest schema, which is the reader's schema. `with_latest_schema` sets it.
    """

    column: str
    format: str
    schema: str | None = None
    message: str | None = None
    subject: str | None = None
    on_error: Literal["fail", "null"] = "fail"
    registry: Registry | None = field(default=None)
    latest: Schema | None = None

    def option(self, name: str) -> str:
        """Return the full name of an option of this column, such as `value.schema`."""
        return f"{self.column}.{name}"

    def with_latest_schema(self) -> ColumnFormat:
        """Return these options, completed with the registry's latest schema if they contain no schema.

        The schema is requested once for each query, so the query's columns stay the same while the registry
        changes. Raises NoSuchSchema if the subject has no schema, and RegistryFailed if the request fails.
        """
        if self.registry is None or self.subject is None or self.format not in _SCHEMA_REPRESENTATIONS:
            return self
        if self.schema is not None or self.latest is not None:
            return self
        return replace(self, latest=self.registry.latest(self.subject, _SCHEMA_REPRESENTATIONS[self.format]))
