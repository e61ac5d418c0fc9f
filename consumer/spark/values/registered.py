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


class RegisteredDecoder:
    """Decodes values that begin with the id of their writer's schema.

    `create_decoder` returns the decoder for the values of one schema id. If it raises NoSuchSchema, Mismatch
    or ConfigError, the values with this id are invalid. `target` is the Arrow type of the column.
    """

    def __init__(self, target: Any, create_decoder: Callable[[SchemaId], Decode]) -> None:
        self.target, self.create_decoder = target, create_decoder
        # The decoder for each schema id, or the reason why its values cannot be decoded.
        self.decoders: dict[SchemaId, Decode | str] = {}

    def decode(self, values: Column) -> tuple[Column, Bad]:
        """Decode values in groups, one group for each schema id."""
        bad: dict[int, str] = {}
        columns: list[Column] = []
        row_groups: list[Ints] = []
        for schema_id, rows in rows_by_schema_id(values, bad):
            decode = self._decoder_or_reason(schema_id)
            if isinstance(decode, str):
                bad.update(dict.fromkeys(rows.tolist(), decode))
                continue
            group = values if len(rows) == len(values) else values.take(from_numpy(rows))
            column, group_errors = decode(strip_header(group, id_size(schema_id)))
            bad.update({int(rows[row]): reason for row, reason in group_errors.items()})
            columns.append(column)
            row_groups.append(rows)
        return merge(columns, row_groups, len(values), self.target), bad

    def _decoder_or_reason(self, schema_id: SchemaId) -> Decode | str:
        """Return the decoder for the values of a schema id, or the reason why they cannot be decoded."""
        if schema_id not in self.decoders:
            try:
                self.decoders[schema_id] = self.create_decoder(schema_id)
            except NoSuchSchema as error:
                self.decoders[schema_id] = str(error)
            except Mismatch as error:
                self.decoders[schema_id] = f"schema {schema_id} of its writer does not fit: {error}"
            except ConfigError as error:
                self.decoders[schema_id] = f"schema {schema_id} of its writer is not usable: {error.allowed}"
        return self.decoders[schema_id]
