"""Keep the latest record of each aircraft, as in change data capture.

The pipeline merges every batch into a table. If Spark repeats a batch, the merge produces the same table.
"""

from __future__ import annotations

from pathlib import Path

from flights import Environment, assert_same, environment
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def merge(batch: DataFrame, number: int, folder: Path) -> None:
    """Merge a batch into a new version of the table, so that a repeated batch writes the same version."""
    before = folder / f"planes-{number - 1}"
    rows = batch.where("tailnum is not null")
    if before.exists():
        rows = rows.unionByName(batch.sparkSession.read.parquet(str(before)))
    newest = Window.partitionBy("tailnum").orderBy(f.desc("timestamp"), f.desc("origin"), f.desc("offset"))
    latest = rows.withColumn("rank", f.row_number().over(newest)).where("rank = 1").drop("rank")
    latest.write.mode("overwrite").parquet(str(folder / f"planes-{number}"))


def planes(env: Environment) -> None:
    stream = env.spark.readStream.format("kproto").options(
        **env.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    )
    rows = env.parsed(stream.load())
    env.run(rows.writeStream.foreachBatch(lambda frame, n: merge(frame, n, env.folder)), "checkpoint")


def main() -> None:
    with environment(__doc__ or "") as env:
        env.write(env.table)
        planes(env)
        last = max(env.folder.glob("planes-*"), key=lambda path: int(path.name.partition("-")[2]))
        rows = env.spark.read.parquet(str(last))
        result = rows.select("tailnum", f.unix_millis("timestamp"), "origin", "flight").collect()

        # An airport's records are in one partition, so a stable sort keeps the order of their offsets.
        newest = env.table.dropna(subset="tailnum").sort_values(["event_time", "origin"], kind="stable")
        expected = newest.drop_duplicates("tailnum", keep="last")
        columns = expected[["tailnum", "event_time", "origin", "flight"]]
        assert_same("aircraft", map(tuple, result), columns.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
