"""What is killed again and again: batches, a stream into files, one with state, and one back into Kafka.

    python spark_crash_job.py MASTER BOOTSTRAP TOPIC FOLDER

runs until there is a file FOLDER/stop; then every stream reads to the end, and FOLDER/done says so. Every
start goes on where the one before was killed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from consumer import Cluster, TopicPartition
from consumer.spark import register
from tests.conformance.spark_cluster import session


def main(master: str, bootstrap: str, topic: str, folder: Path) -> None:
    spark: Any = session(master)
    register(spark)
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

    def streams(**trigger: Any) -> list[Any]:
        def stream() -> Any:
            given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
            return spark.readStream.format("kproto").options(**where, **given).load()

        def started(writer: Any, name: str) -> Any:
            return (
                writer.option("checkpointLocation", str(folder / "checkpoints" / name))
                .trigger(**trigger)
                .start()
            )

        rows = stream().selectExpr("partition", "offset", "cast(value as string) value")
        counts = stream().groupBy("partition").agg({"offset": "count"})
        copy = stream().select("value", "partition")
        return [
            started(rows.writeStream.format("parquet").option("path", str(folder / "rows")), "rows"),
            started(counts.writeStream.outputMode("complete").foreachBatch(keep), "counts"),
            started(copy.writeStream.format("kproto").options(**where_to), "copy"),
        ]

    def keep(frame: Any, number: int) -> None:
        found = {row["partition"]: row["count(offset)"] for row in frame.collect()}
        new = folder / f"counts.{number}"
        new.write_text(json.dumps(found))
        new.rename(folder / "counts")

    where_to = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-copy"}
    with Cluster(bootstrap) as cluster:
        running = streams(processingTime="0 seconds")
        while not (folder / "stop").exists():
            batch(spark, cluster, where, folder)
            for query in running:
                if not query.isActive:
                    raise RuntimeError(f"a stream ended: {query.exception()}")
        for query in running:
            query.stop()
        for query in streams(availableNow=True):
            query.awaitTermination()
    (folder / "done").touch()
    spark.stop()


def batch(spark: Any, cluster: Cluster, where: dict[str, str], folder: Path) -> None:
    """A batch over what there is; what is wrong with it goes into a file."""
    topic = where["subscribe"]
    partitions = dict.fromkeys((TopicPartition(topic, n) for n in range(3)), "latest")
    ends = {p.partition: at.offset or 0 for p, at in cluster.list_offsets(partitions).items()}
    given = {"endingOffsets": json.dumps({topic: ends}), "minPartitions": "5"}
    frame = spark.read.format("kproto").options(**where, **given).load()
    summed = "sum(cast(cast(value as string) as bigint))"
    [found] = frame.selectExpr("count(*)", "count(distinct partition, offset)", summed).collect()
    count = sum(ends.values())
    expected = (count, count, sum(end * (end - 1) // 2 for end in ends.values()))
    with (folder / "batches").open("a") as log:
        log.write("right\n" if tuple(found) == expected else f"{tuple(found)} instead of {expected}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
