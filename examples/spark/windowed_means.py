"""Compute mean delays by airport and hour, and write each hour to Parquet after the watermark passes it."""

from __future__ import annotations

from flights import Environment, assert_same, environment
from pyspark.sql import functions as f


def hours(env: Environment) -> None:
    stream = env.spark.readStream.format("kproto").options(
        **env.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    )
    means = (
        env.parsed(stream.load())
        .withWatermark("timestamp", "2 days")
        .groupBy("origin", f.window("timestamp", "1 hour"))
        .agg(f.count("*").alias("departures"), f.sum("dep_delay").alias("delay"))
        .selectExpr("origin", "window.start hour", "departures", "delay", "delay / departures mean")
    )
    env.run(means.writeStream.format("parquet").option("path", str(env.folder / "hours")), "checkpoint")


def main() -> None:
    with environment(__doc__ or "") as env:
        env.write(env.table)
        hours(env)
        rows = env.spark.read.parquet(str(env.folder / "hours"))
        result = rows.select("origin", f.unix_millis("hour").alias("at"), "departures", "delay").collect()

        table = env.table.assign(at=env.table.event_time // 3_600_000 * 3_600_000)
        expected = table.groupby(["origin", "at"])["dep_delay"].agg(["size", "sum"]).reset_index()
        # Compare only hours that end before the watermark, which is two days before the latest departure.
        closed = expected[expected["at"] + 3_600_000 <= table.event_time.max() - 2 * 86_400_000]
        assert_same("hours", map(tuple, result), closed.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
