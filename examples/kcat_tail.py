r"""Print the last records of each partition and wait for more, as `kcat -C -o -2 -f '%p %o %k %s\n'` does."""

from __future__ import annotations

from collections.abc import Iterator

from embedded import broker

from kproto import Consumer, ConsumerRecord, Producer


def tail(bootstrap: str, topic: str, last: int) -> Iterator[ConsumerRecord]:
    """Yield the last records of each partition, then each new record, without end."""
    with Consumer(bootstrap) as consumer:  # without a group: nothing is committed
        partitions = consumer.partitions_for(topic)
        starts = consumer.list_offsets(dict.fromkeys(partitions, "earliest"))
        ends = consumer.list_offsets(dict.fromkeys(partitions, "latest"))
        consumer.assign({p: max(starts[p].offset or 0, (ends[p].offset or 0) - last) for p in partitions})
        while True:
            yield from consumer.poll(1.0)


def main() -> None:
    with broker(__doc__ or "", {"log": 2}) as bootstrap, Producer(bootstrap) as producer:
        for number in range(10):
            producer.send("log", b"line %d" % number, key=b"k", partition=number % 2)
        producer.flush()

        printed: list[bytes | None] = []
        for record in tail(bootstrap, "log", last=2):
            key, value = (part.decode() if part is not None else "" for part in (record.key, record.value))
            print(record.partition, record.offset, key, value)
            printed.append(record.value)
            if len(printed) == 4:  # All existing records are printed; `tail` waits for a new record.
                producer.send("log", b"line 10", partition=0)
            if len(printed) == 5:
                break
        assert sorted(printed[:4], key=str) == [b"line %d" % number for number in range(6, 10)]
        assert printed[4] == b"line 10"
        print(f"{len(printed)} lines")


if __name__ == "__main__":
    main()
