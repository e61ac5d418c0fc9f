"""The latest of each aircraft, as change data capture does it: a table that every batch merges into, and
that is right also when a batch is repeated."""

from __future__ import annotations

from pathlib import Path

from flights import Place, agreed, place
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def merge(batch: DataFrame, number: int, folder: Path) -> None:
    """Write the table after this batch beside the one before it: repeating it writes the same again."""
    before = folder / f"planes-{number - 1}"
    rows = batch.where("tailnum is not null")
    if before.exists():
        rows = rows.unionByName(batch.sparkSession.read.parquet(str(before)))
    newest = Window.partitionBy("tailnum").orderBy(f.desc("timestamp"), f.desc("origin"), f.desc("offset"))
    latest = rows.withColumn("rank", f.row_number().over(newest)).where("rank = 1").drop("rank")
    latest.write.mode("overwrite").parquet(str(folder / f"planes-{number}"))


def planes(at: Place) -> None:
    stream = at.spark.readStream.format("kproto").options(
        **at.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    )
    rows = at.parsed(stream.load())
    at.run(rows.writeStream.foreachBatch(lambda frame, n: merge(frame, n, at.folder)), "checkpoint")


def main() -> None:
    with place(__doc__ or "") as at:
        at.write(at.table)
        planes(at)
        last = max(at.folder.glob("planes-*"), key=lambda path: int(path.name.partition("-")[2]))
        rows = at.spark.read.parquet(str(last))
        found = rows.select("tailnum", f.unix_millis("timestamp"), "origin", "flight").collect()

        # One airport's records are in one partition, in their order.
        newest = at.table.dropna(subset="tailnum").sort_values(["event_time", "origin"], kind="stable")
        expected = newest.drop_duplicates("tailnum", keep="last")
        columns = expected[["tailnum", "event_time", "origin", "flight"]]
        agreed("aircraft", map(tuple, found), columns.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
