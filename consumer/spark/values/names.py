"""The names of options and columns that the formats share."""

from __future__ import annotations

from typing import Final

# The column with the reason for each value that could not be decoded.
ERROR: Final = "_error"

# The precision of TIME columns: microseconds, as in Avro's time-micros.
TIME_PRECISION: Final = 6

COLUMNS: Final = ("key", "value")

REGISTRY_URL: Final = "schema.registry.url"
REGISTRY_USER: Final = "schema.registry.basic.auth.user.info"
