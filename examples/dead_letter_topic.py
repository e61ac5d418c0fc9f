"""Retry records that fail, and send those that fail three times to a dead letter topic."""

from __future__ import annotations

from embedded import broker

from kproto import Consumer, ConsumerRecord, Producer, TopicPartition

ORDERS = [b"1", b"2", b"three", b"4"]
ATTEMPTS = 3


def process(record: ConsumerRecord) -> int:
    return int(record.value or b"")  # raises ValueError for b"three", on every attempt


def send_on(producer: Producer, record: ConsumerRecord, error: Exception) -> None:
    """Send a failed record to the topic of its next attempt, or to the dead letter topic."""
    headers = dict(record.headers)
    attempt = int(headers.get("attempt") or b"1")
    topic = "orders-retry" if attempt < ATTEMPTS else "orders-dead"
    new = {"attempt": b"%d" % (attempt + 1), "error": str(error).encode()}
    producer.send(topic, record.value, key=record.key, headers=list((headers | new).items()))


def main() -> None:
    topics = {"incoming-orders": 1, "orders-retry": 1, "orders-dead": 1}
    with broker(__doc__ or "", topics) as bootstrap, Producer(bootstrap) as producer:
        for order in ORDERS:
            producer.send("incoming-orders", order)

        done: list[int] = []
        failures = 0
        with Consumer(
            bootstrap, group_id="orders", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(["incoming-orders", "orders-retry"])
            while len(done) + failures < len(ORDERS) - 1 + ATTEMPTS:
                ends: dict[TopicPartition, int] = {}
                for record in consumer.poll(1.0):
                    try:
                        done.append(process(record))
                    except ValueError as error:
                        failures += 1
                        send_on(producer, record, error)
                    ends[record.topic_partition] = record.offset + 1
                producer.flush()  # the failed record is written before its offset is committed
                consumer.commit(ends)
        assert sorted(done) == [1, 2, 4]

        with Consumer(
            bootstrap, group_id="undertaker", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(["orders-dead"])
            dead = next(consumer)
            consumer.commit({dead.topic_partition: dead.offset + 1})
        assert dead.value == b"three"
        print(f"{len(done)} orders, 1 dead letter after {failures} attempts: {dict(dead.headers)['error']!r}")


if __name__ == "__main__":
    main()
