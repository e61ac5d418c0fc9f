"""A topic grows while it is read with `latest`: what is written before a client notices is lost with sarama,
librdkafka, kafka-go and Java, and read by kproto, which starts new partitions at their first record."""

from __future__ import annotations

from embedded import broker

from kproto import Cluster, Consumer, Producer, TopicPartition


def main() -> None:
    with broker(__doc__ or "", {"sensors": 1}) as bootstrap:
        watch(bootstrap)


def watch(bootstrap: str) -> None:
    # Looks for new partitions every second; Kafka's default of five minutes only makes it later.
    with Consumer(bootstrap, group_id="dashboard", metadata_max_age_ms=1_000) as consumer:
        consumer.subscribe("sensors")
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.position(TopicPartition("sensors", 0))

        with Cluster(bootstrap) as cluster:
            old = cluster.topics()["sensors"]
            cluster.create_partitions({"sensors": old + 2})
        with Producer(bootstrap) as producer:
            for number in range(100):  # at once: nobody has noticed the new partitions yet
                producer.send("sensors", b"%d" % number, partition=old + number % 2)

        seen: list[int] = []
        while len(seen) < 100:
            seen += [int(record.value or b"") for record in consumer.poll(1.0)]
        print(f"{len(seen)} of 100 read, none lost: {sorted(seen) == list(range(100))}")


if __name__ == "__main__":
    main()
