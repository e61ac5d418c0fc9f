"""``value.format=string``: decode UTF-8 text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kproto.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from .types import Bad, Column, ColumnFormat, Decode


def column_type(column_format: ColumnFormat) -> str:
    """Return the DDL type of the column."""
    return "STRING"


def decoder(column_format: ColumnFormat, kind: DataType) -> Decode:
    """Return a decoder. Raises ConfigError if the column is not a STRING."""
    if kind.simpleString() != "string":
        raise ConfigError(
            "schema",
            f"{column_format.column} {kind.simpleString()}",
            'a column whose format is "string" must have the type STRING',
        )
    return decode


def decode(values: Column) -> tuple[Column, Bad]:
    """Decode UTF-8. Values that are not UTF-8 become null, and are reported as bad."""
    pa: Any = import_module("pyarrow")
    try:
        return values.cast(pa.string()), {}
    except pa.ArrowInvalid:
        bad: dict[int, str] = {}
        texts: list[str | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                bad[row] = f"the bytes are not UTF-8: {error.reason} at byte {error.start}"
        from kproto.records.arrow_arrays import from_texts

        return from_texts(texts), bad
