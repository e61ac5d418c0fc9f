"""Join two streams: each departure with all departures of the same aircraft in the next six hours."""

from __future__ import annotations

from flights import Environment, assert_same, environment
from pyspark.sql import functions as f

HOURS = 6


def turnarounds(env: Environment) -> None:
    def stream(name: str) -> object:
        options = env.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
        rows = env.parsed(env.spark.readStream.format("kproto").options(**options).load())
        rows = rows.where("tailnum is not null").withWatermark("timestamp", "2 days")
        return rows.select("tailnum", "timestamp", "origin", "flight").alias(name)

    limit = f"earlier.timestamp + interval {HOURS} hours"
    condition = f"later.timestamp > earlier.timestamp and later.timestamp <= {limit}"
    pairs = (
        stream("earlier")
        .join(stream("later"), f.expr(f"earlier.tailnum = later.tailnum and {condition}"))
        .selectExpr(
            "earlier.tailnum",
            "unix_millis(earlier.timestamp) start",
            "unix_millis(later.timestamp) next_start",
        )
    )
    env.run(pairs.writeStream.format("parquet").option("path", str(env.folder / "pairs")), "checkpoint")


def main() -> None:
    with environment(__doc__ or "") as env:
        env.write(env.table)
        turnarounds(env)
        result = env.spark.read.parquet(str(env.folder / "pairs")).collect()

        flown = env.table.dropna(subset="tailnum")[["tailnum", "event_time"]]
        pairs = flown.merge(flown, on="tailnum", suffixes=("", "_again"))
        between = pairs.event_time_again - pairs.event_time
        expected = pairs[(between > 0) & (between <= HOURS * 3_600_000)]
        assert_same("turnarounds", map(tuple, result), expected.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
