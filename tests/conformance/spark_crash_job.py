"""What is killed again and again: batches, a stream into files, one with state, and two back into Kafka.

    python spark_crash_job.py MASTER BOOTSTRAP TOPIC FOLDER

runs until there is a file FOLDER/stop; then every stream reads to the end, and FOLDER/done says so. Every
start goes on where the one before was killed; a stream that ended is started again here, as starting a driver
takes most of a kill's time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from consumer import Cluster, TopicPartition
from consumer.spark import register
from tests.conformance.spark_cluster import session

NAMES = ["rows", "counts", "copy", "once"]


def main(master: str, bootstrap: str, topic: str, folder: Path) -> None:
    spark: Any = session(master)
    register(spark)
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

    def streams(names: list[str], **trigger: Any) -> dict[str, Any]:
        """These streams, started; each goes on at its checkpoint."""

        def stream() -> Any:
            given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
            return spark.readStream.format("kproto").options(**where, **given).load()

        def writer(name: str) -> Any:
            if name == "rows":
                rows = stream().selectExpr("partition", "offset", "cast(value as string) value")
                return rows.writeStream.format("parquet").option("path", str(folder / "rows"))
            if name == "counts":
                counts = stream().groupBy("partition").agg({"offset": "count"})
                return counts.writeStream.outputMode("complete").foreachBatch(keep)
            given = where_to if name == "copy" else where_once
            return stream().select("value", "partition").writeStream.format("kproto").options(**given)

        where_from = {name: str(folder / "checkpoints" / name) for name in names}
        return {
            name: writer(name).option("checkpointLocation", checkpoint).trigger(**trigger).start()
            for name, checkpoint in where_from.items()
        }

    def keep(frame: Any, number: int) -> None:
        found = {row["partition"]: row["count(offset)"] for row in frame.collect()}
        new = folder / f"counts.{number}"
        new.write_text(json.dumps(found))
        new.rename(folder / "counts")

    where_to = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}-copy"}
    where_once = {**where_to, "topic": f"{topic}-once", "transactionalIdPrefix": topic}
    with Cluster(bootstrap) as cluster:
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
