"""The Spark job that test_spark_crashes.py kills repeatedly.

The job runs batch queries and streams. One stream writes files, one counts records, and two write to Kafka.

    python spark_crash_job.py MASTER BOOTSTRAP TOPIC FOLDER

The job runs until the file FOLDER/stop exists. Every stream then reads to the end, and the job writes
FOLDER/done.

Each start of the job resumes from the checkpoints. If a kill ends a stream, the job restarts the stream in
the same driver, because a new driver starts slowly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from consumer import Admin, TopicPartition
from consumer.spark import register
from tests.conformance.spark_cluster import session

NAMES = ["rows", "counts", "copy", "once"]


def main(master: str, bootstrap: str, topic: str, folder: Path) -> None:
    spark: Any = session(master)
    register(spark)
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

    def streams(names: list[str], **trigger: Any) -> dict[str, Any]:
        """Start these streams from their checkpoints."""

        def stream() -> Any:
            options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
            return spark.readStream.format("kproto").options(**where, **options).load()

        def writer(name: str) -> Any:
            if name == "rows":
                rows = stream().selectExpr("partition", "offset", "cast(value as string) value")
                return rows.writeStream.format("parquet").option("path", str(folder / "rows"))
            if name == "counts":
                counts = stream().groupBy("partition").agg({"offset": "count"})
                return counts.writeStream.outputMode("complete").foreachBatch(keep)
            sink_options = where_to if name == "copy" else where_once
            return stream().select("value", "partition").writeStream.format("kproto").options(**sink_options)

        where_from = {name: str(folder / "checkpoints" / name) for name in names}
        return {
            name: writer(name).option("checkpointLocation", checkpoint).trigger(**trigger).start()
            for name, checkpoint in where_from.items()
        }

    def keep(frame: Any, number: int) -> None:
        counts = {row["partition"]: row["count(offset)"] for row in frame.collect()}
        new = folder / f"counts.{number}"
        new.write_text(json.dumps(counts))
        new.rename(folder / "counts")

    where_to = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-copy"}
    where_once = {**where_to, "topic": f"{topic}-once", "transactionalIdPrefix": topic}
    with Admin(bootstrap) as cluster:
        running = streams(NAMES, processingTime="0 seconds")
        while not (folder / "stop").exists():
            batch(spark, cluster, where, folder)
            ended = [name for name, query in running.items() if not query.isActive]
            for name in ended:
                print(f"{name} ended: {str(running[name].exception())[:200]}", flush=True)
            running |= streams(ended, processingTime="0 seconds")
        for query in running.values():
            query.stop()
        for query in streams(NAMES, availableNow=True).values():
            query.awaitTermination()
    (folder / "done").touch()
    spark.stop()


def batch(spark: Any, cluster: Admin, where: dict[str, str], folder: Path) -> None:
    """Check a batch query over all records, and write the result to a file."""
    topic = where["subscribe"]
    partitions = dict.fromkeys((TopicPartition(topic, n) for n in range(3)), "latest")
    ends = {p.partition: at.offset or 0 for p, at in cluster.list_offsets(partitions).items()}
    options = {"endingOffsets": json.dumps({topic: ends}), "minPartitions": "5"}
    frame = spark.read.format("kproto").options(**where, **options).load()
    summed = "sum(cast(cast(value as string) as bigint))"
    [totals] = frame.selectExpr("count(*)", "count(distinct partition, offset)", summed).collect()
    count = sum(ends.values())
    expected = (count, count, sum(end * (end - 1) // 2 for end in ends.values()))
    with (folder / "batches").open("a") as log:
        log.write("right\n" if tuple(totals) == expected else f"{tuple(totals)} instead of {expected}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
