"""Sessions of an aircraft: departures that follow each other within half a day, kept as state until a timer
says that they ended."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from flights import Place, agreed, place
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from consumer.spark.session import ROCKS_DB, STATE_STORE

GAP_MS = 12 * 3_600_000
SESSION = "tailnum string, began long, ended long, departures int"


class Sessions(StatefulProcessor):
    """Departures come out of order by up to the watermark's delay: they are kept until none can join."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.departures = handle.getListState("departures", "at long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            at = int(row.timestamp.timestamp() * 1000)
            self.departures.appendValue((at,))
            self.handle.registerTimer(at + GAP_MS)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Nothing before the watermark comes any more: who ended half a day before it is a session."""
        now = timerValues.getCurrentWatermarkInMs()
        found: list[list[int]] = []
        for (at,) in sorted(self.departures.get()):
            if not found or at - found[-1][-1] > GAP_MS:
                found.append([])
            found[-1].append(at)
        self.departures.clear()
        for times in found:
            if times[-1] + GAP_MS <= now:
                yield Row(tailnum=key[0], began=times[0], ended=times[-1], departures=len(times))
            else:
                self.departures.appendList([(at,) for at in times])

    def close(self) -> None: ...


def sessions(at: Place) -> None:
    given = at.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    rows = at.parsed(at.spark.readStream.format("kproto").options(**given).load())
    rows = rows.where("tailnum is not null").withWatermark("timestamp", "2 days")
    found = (
        rows.select("tailnum", "timestamp")
        .groupBy("tailnum")
        .transformWithState(Sessions(), SESSION, outputMode="Append", timeMode="EventTime")
    )
    at.run(found.writeStream.format("parquet").option("path", str(at.folder / "sessions")), "checkpoint")


def main() -> None:
    if not find_spec("google") or not find_spec("google.protobuf"):
        raise SystemExit("transformWithState needs protobuf: pip install 'kproto[demo]'")
    with place(__doc__ or "", **{STATE_STORE: ROCKS_DB}) as at:  # state of one's own lives there only
        at.write(at.table)
        sessions(at)
        found = at.spark.read.parquet(str(at.folder / "sessions")).collect()

        flown = at.table.dropna(subset="tailnum").sort_values(["tailnum", "event_time"])
        new = flown.groupby("tailnum")["event_time"].diff().gt(GAP_MS).groupby(flown.tailnum).cumsum()
        each = flown.groupby([flown.tailnum, new.rename("number")])["event_time"].agg(["min", "max", "size"])
        # Those that had ended when the watermark came to its end: the latest departure but two days.
        closed = each[each["max"] + GAP_MS <= at.table.event_time.max() - 2 * 86_400_000].reset_index()
        columns = closed[["tailnum", "min", "max", "size"]]
        agreed("sessions", map(tuple, found), columns.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
