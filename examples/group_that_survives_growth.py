"""A topic gains partitions while a group reads it with `latest`, and no record is lost.

With `latest`, sarama, librdkafka, kafka-go and Java skip the records that reach a new partition before the
client notices it. kproto starts new partitions at their first record.
"""

from __future__ import annotations

from embedded import broker

from kproto import Admin, Consumer, Producer, TopicPartition


def main() -> None:
    with broker(__doc__ or "", {"sensors": 1}) as bootstrap:
        watch(bootstrap)


def watch(bootstrap: str) -> None:
    # Check for new partitions every second instead of every five minutes, Kafka's default.
    with Consumer(bootstrap, group_id="dashboard", metadata_max_age_ms=1_000) as consumer:
        consumer.subscribe("sensors")
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.position(TopicPartition("sensors", 0))

        with Admin(bootstrap) as admin:
            old = admin.topics()["sensors"]
            admin.create_partitions({"sensors": old + 2})
        with Producer(bootstrap) as producer:
            for number in range(100):  # The consumer has not noticed the new partitions yet.
                producer.send("sensors", b"%d" % number, partition=old + number % 2)

        numbers: list[int] = []
        while len(numbers) < 100:
            numbers += [int(record.value or b"") for record in consumer.poll(1.0)]
        print(f"{len(numbers)} of 100 read, none lost: {sorted(numbers) == list(range(100))}")


if __name__ == "__main__":
    main()
