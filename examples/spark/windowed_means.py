"""Mean delay of each airport in each hour, appended to Parquet once the watermark has passed the hour."""

from __future__ import annotations

from flights import Place, agreed, place
from pyspark.sql import functions as f


def hours(at: Place) -> None:
    stream = at.spark.readStream.format("kproto").options(
        **at.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    )
    means = (
        at.parsed(stream.load())
        .withWatermark("timestamp", "2 days")
        .groupBy("origin", f.window("timestamp", "1 hour"))
        .agg(f.count("*").alias("departures"), f.sum("dep_delay").alias("delay"))
        .selectExpr("origin", "window.start hour", "departures", "delay", "delay / departures mean")
    )
    at.run(means.writeStream.format("parquet").option("path", str(at.folder / "hours")), "checkpoint")


def main() -> None:
    with place(__doc__ or "") as at:
        at.write(at.table)
        hours(at)
        rows = at.spark.read.parquet(str(at.folder / "hours"))
        found = rows.select("origin", f.unix_millis("hour").alias("at"), "departures", "delay").collect()

        table = at.table.assign(at=at.table.event_time // 3_600_000 * 3_600_000)
        expected = table.groupby(["origin", "at"])["dep_delay"].agg(["size", "sum"]).reset_index()
        # The hours that end before the watermark: the latest departure but two days.
        closed = expected[expected["at"] + 3_600_000 <= table.event_time.max() - 2 * 86_400_000]
        agreed("hours", map(tuple, found), closed.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
