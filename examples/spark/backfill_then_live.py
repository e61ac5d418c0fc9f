"""Read the existing records as a batch, then continue as a stream from the next record, without gaps."""

from __future__ import annotations

import json

from flights import Environment, assert_same, environment
from pyspark.sql import functions as f


def backfill(env: Environment) -> str:
    """Read all records as a batch, and return the end offsets in the format of startingOffsets."""
    history = env.parsed(env.spark.read.format("kproto").options(**env.options()).load()).cache()
    history.write.mode("append").parquet(str(env.folder / "flights"))
    ends = dict.fromkeys(map(str, range(3)), 0)
    for row in history.groupBy("partition").agg((f.max("offset") + 1).alias("end")).collect():
        ends[str(row.partition)] = row.end
    return json.dumps({env.topic: ends})


def live(env: Environment, starting: str) -> None:
    stream = env.spark.readStream.format("kproto").options(**env.options(startingOffsets=starting))
    rows = env.parsed(stream.load())
    env.run(rows.writeStream.format("parquet").option("path", str(env.folder / "live")), "checkpoint")


def main() -> None:
    with environment(__doc__ or "") as env:
        half = len(env.table) // 2
        env.write(env.table[:half])
        starting = backfill(env)
        for rows in (env.table[half : half + 1000], env.table[half + 1000 :]):
            env.write(rows)
            live(env, starting)  # later runs resume from the checkpoint
        parts = [env.spark.read.parquet(str(env.folder / name)) for name in ("flights", "live")]
        departures = parts[0].unionByName(parts[1])
        assert departures.select("partition", "offset").distinct().count() == departures.count()
        columns = ("origin", "carrier", "flight", "event_time")
        result = departures.select("origin", "carrier", "flight", f.unix_millis("timestamp")).collect()
        assert_same(
            "departures", map(tuple, result), env.table[list(columns)].itertuples(index=False, name=None)
        )


if __name__ == "__main__":
    main()
