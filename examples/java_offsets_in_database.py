"""Store results and offsets in one database transaction, as in the Javadoc of ConsumerRebalanceListener.

After a restart each record is in the database exactly once, because the consumer seeks to the stored offsets.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from embedded import broker

from kproto import Admin, Consumer, Producer, RebalanceListener, TopicPartition

RECORDS = 40
TABLE = "CREATE TABLE results (part INTEGER, next INTEGER, value TEXT, PRIMARY KEY (part, next))"


class StoredOffsets(RebalanceListener):
    """Seeks each assigned partition to the offset after its last record in the database."""

    def __init__(self, consumer: Consumer, database: sqlite3.Connection) -> None:
        self.consumer, self.database = consumer, database

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            (offset,) = self.database.execute(
                "SELECT max(next) FROM results WHERE part = ?", (partition.partition,)
            ).fetchone()
            self.consumer.seek(partition, offset or 0)


def read(bootstrap: str, database: sqlite3.Connection, until: int) -> None:
    """Read until the database contains `until` results. Nothing is committed to the group."""
    with Consumer(bootstrap, group_id="ledger", enable_auto_commit=False, max_poll_records=10) as consumer:
        consumer.subscribe(["entries"], StoredOffsets(consumer, database))
        while database.execute("SELECT count(*) FROM results").fetchone()[0] < until:
            records = consumer.poll(1.0)
            with database:  # one transaction: all rows of the poll, or none after an exception
                rows = [(record.partition, record.offset + 1, record.value) for record in records]
                database.executemany("INSERT INTO results VALUES (?, ?, ?)", rows)


def main() -> None:
    with broker(__doc__ or "", {"entries": 2}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("entries", b"%d" % number, partition=number % 2)
        with Admin(bootstrap) as admin:
            ends = admin.list_offsets(dict.fromkeys(admin.partitions("entries"), "latest"))
        total = sum(end.offset or 0 for end in ends.values())

        database = sqlite3.connect(":memory:")
        database.execute(TABLE)
        read(bootstrap, database, until=RECORDS // 2)
        read(bootstrap, database, until=total)
        stored = database.execute("SELECT part, max(next), count(*) FROM results GROUP BY part").fetchall()
        database.close()
        assert stored == [(p.partition, end.offset, end.offset) for p, end in sorted(ends.items())]
        print(f"{total} of {total} records, each exactly once")


if __name__ == "__main__":
    main()
