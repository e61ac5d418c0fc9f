"""A worker thread for each partition, as in franz-go's example with a goroutine per partition."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from queue import Queue

from embedded import broker

from kproto import Consumer, ConsumerRecord, Producer, RebalanceListener, TopicPartition

RECORDS = 30


class Worker:
    """Processes the records of one partition in order."""

    def __init__(self) -> None:
        self.queue: Queue[ConsumerRecord | None] = Queue(maxsize=1_000)  # a full queue blocks the poll loop
        self.values: list[int] = []
        self.next_offset: int | None = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while (record := self.queue.get()) is not None:
            self.values.append(int(record.value or b""))
            self.next_offset = record.offset + 1

    def finish(self) -> None:
        self.queue.put(None)
        self.thread.join()


class Workers(RebalanceListener):
    """Start a worker for each assigned partition, and stop it when the partition is revoked or lost. The
    callbacks run inside `poll()` and `close()`.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.by_partition: dict[TopicPartition, Worker] = {}
        self.values: list[int] = []

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.by_partition |= {partition: Worker() for partition in partitions}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        workers = self.end(partitions)
        self.consumer.commit({p: w.next_offset for p, w in workers.items() if w.next_offset is not None})

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.end(partitions)  # another member may own the partitions: nothing can be committed

    def end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Worker]:
        workers = {partition: self.by_partition.pop(partition) for partition in partitions}
        for worker in workers.values():
            worker.finish()
            self.values += worker.values
        return workers


def main() -> None:
    with broker(__doc__ or "", {"work": 3}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("work", b"%d" % number, partition=number % 3)

        with Consumer(
            bootstrap, group_id="workers", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            workers = Workers(consumer)
            consumer.subscribe(["work"], workers)
            count = 0
            while count < RECORDS:
                for record in consumer.poll(1.0):
                    workers.by_partition[record.topic_partition].queue.put(record)
                    count += 1
        # close has stopped all workers and committed their offsets
        assert sorted(workers.values) == list(range(RECORDS))
        print(f"{len(workers.values)} records, in the order of each partition")


if __name__ == "__main__":
    main()
