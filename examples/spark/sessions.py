"""Group the departures of each aircraft into sessions with gaps of at most half a day.

The departures are kept in the state until a timer shows that the session has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from flights import Environment, assert_same, environment
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from consumer.spark.session import ROCKS_DB, STATE_STORE

GAP_MS = 12 * 3_600_000
SESSION = "tailnum string, began long, ended long, departures int"


class Sessions(StatefulProcessor):
    """Keep departures in the state until the watermark is half a day past the end of their session."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.departures = handle.getListState("departures", "at long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            departure_ms = int(row.timestamp.timestamp() * 1000)
            self.departures.appendValue((departure_ms,))
            self.handle.registerTimer(departure_ms + GAP_MS)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Return the sessions that ended at least half a day before the watermark."""
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        sessions: list[list[int]] = []
        for (departure_ms,) in sorted(self.departures.get()):
            if not sessions or departure_ms - sessions[-1][-1] > GAP_MS:
                sessions.append([])
            sessions[-1].append(departure_ms)
        self.departures.clear()
        for times in sessions:
            if times[-1] + GAP_MS <= watermark_ms:
                yield Row(tailnum=key[0], began=times[0], ended=times[-1], departures=len(times))
            else:
                self.departures.appendList([(departure_ms,) for departure_ms in times])

    def close(self) -> None: ...


def run_sessions(env: Environment) -> None:
    options = env.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    rows = env.parsed(env.spark.readStream.format("kproto").options(**options).load())
    rows = rows.where("tailnum is not null").withWatermark("timestamp", "2 days")
    results = (
        rows.select("tailnum", "timestamp")
        .groupBy("tailnum")
        .transformWithState(Sessions(), SESSION, outputMode="Append", timeMode="EventTime")
    )
    env.run(results.writeStream.format("parquet").option("path", str(env.folder / "sessions")), "checkpoint")


def main() -> None:
    if not find_spec("google") or not find_spec("google.protobuf"):
        raise SystemExit("transformWithState needs protobuf: pip install 'kproto[demo]'")
    with environment(__doc__ or "", **{STATE_STORE: ROCKS_DB}) as env:  # custom state requires RocksDB
        env.write(env.table)
        run_sessions(env)
        result = env.spark.read.parquet(str(env.folder / "sessions")).collect()

        flown = env.table.dropna(subset="tailnum").sort_values(["tailnum", "event_time"])
        new = flown.groupby("tailnum")["event_time"].diff().gt(GAP_MS).groupby(flown.tailnum).cumsum()
        by_session = flown.groupby([flown.tailnum, new.rename("number")])["event_time"].agg(
            ["min", "max", "size"]
        )
        # The last watermark is two days before the latest departure. The stream has written only the sessions
        # that ended at least half a day before this watermark. The state still contains all later sessions.
        closed = by_session[
            by_session["max"] + GAP_MS <= env.table.event_time.max() - 2 * 86_400_000
        ].reset_index()
        columns = closed[["tailnum", "min", "max", "size"]]
        assert_same("sessions", map(tuple, result), columns.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
