"""Two streams joined: each departure with every later one of the same aircraft within six hours."""

from __future__ import annotations

from flights import Place, agreed, place
from pyspark.sql import functions as f

HOURS = 6


def turnarounds(at: Place) -> None:
    def stream(name: str) -> object:
        given = at.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
        rows = at.parsed(at.spark.readStream.format("kproto").options(**given).load())
        rows = rows.where("tailnum is not null").withWatermark("timestamp", "2 days")
        return rows.select("tailnum", "timestamp", "origin", "flight").alias(name)

    later = f"next.timestamp > one.timestamp and next.timestamp <= one.timestamp + interval {HOURS} hours"
    pairs = (
        stream("one")
        .join(stream("next"), f.expr(f"one.tailnum = next.tailnum and {later}"))
        .selectExpr("one.tailnum", "unix_millis(one.timestamp) left", "unix_millis(next.timestamp) again")
    )
    at.run(pairs.writeStream.format("parquet").option("path", str(at.folder / "pairs")), "checkpoint")


def main() -> None:
    with place(__doc__ or "") as at:
        at.write(at.table)
        turnarounds(at)
        found = at.spark.read.parquet(str(at.folder / "pairs")).collect()

        flown = at.table.dropna(subset="tailnum")[["tailnum", "event_time"]]
        pairs = flown.merge(flown, on="tailnum", suffixes=("", "_again"))
        between = pairs.event_time_again - pairs.event_time
        expected = pairs[(between > 0) & (between <= HOURS * 3_600_000)]
        agreed("turnarounds", map(tuple, found), expected.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
