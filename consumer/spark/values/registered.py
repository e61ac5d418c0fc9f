"""Decodes values that contain schema ids, each value with the schema that is registered under its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kproto.errors import ConfigError
from kproto.records.arrow_arrays import from_numpy

from ...schema_registry.registry import NoSuchSchema, SchemaId
from ...schema_registry.wire_format import id_size
from .lanes import Ints, merge
from .wire_format import rows_by_schema_id, strip_header

if TYPE_CHECKING:
    from .types import Bad, Column, Decode


class Mismatch(ValueError):
    """Raised if a writer's schema does not fit the reader's schema or the column."""


class Registered:
    """Decodes values that begin with the id of their writer's schema.

    `decoder` returns the decoder for the values of one schema id. If it raises NoSuchSchema, Mismatch or
    ConfigError, the values with this id are invalid.
    """

    def __init__(self, target: Any, decoder: Callable[[SchemaId], Decode]) -> None:
        self.target, self.decoder = target, decoder
        self.decoders: dict[SchemaId, Decode | str] = {}

    def decode(self, values: Column) -> tuple[Column, Bad]:
        """Decode values in groups, one group for each schema id."""
        bad: dict[int, str] = {}
        columns: list[Column] = []
        owners: list[Ints] = []
        for schema_id, rows in rows_by_schema_id(values, bad):
            decode = self._decoder(schema_id)
            if isinstance(decode, str):
                bad.update(dict.fromkeys(rows.tolist(), decode))
                continue
            group = values if len(rows) == len(values) else values.take(from_numpy(rows))
            column, wrong = decode(strip_header(group, id_size(schema_id)))
            bad.update({int(rows[row]): reason for row, reason in wrong.items()})
            columns.append(column)
            owners.append(rows)
        return merge(columns, owners, len(values), self.target), bad

    def _decoder(self, schema_id: SchemaId) -> Decode | str:
        """Return the decoder for the values of a schema id, or the reason why they cannot be decoded."""
        if schema_id not in self.decoders:
            try:
                self.decoders[schema_id] = self.decoder(schema_id)
            except NoSuchSchema as error:
                self.decoders[schema_id] = str(error)
            except Mismatch as error:
                self.decoders[schema_id] = f"schema {schema_id} of its writer does not fit: {error}"
            except ConfigError as error:
                self.decoders[schema_id] = f"schema {schema_id} of its writer is not usable: {error.allowed}"
        return self.decoders[schema_id]
