"""Read one partition without a group, as with sarama's PartitionConsumer, and write with a QueueProducer."""

from __future__ import annotations

from itertools import islice

from embedded import broker

from consumer import OLDEST, PartitionConsumers, ProducerMessage, QueueProducer

MESSAGES = 5


def main() -> None:
    with broker(__doc__ or "", {"arrivals": 1}) as bootstrap:
        producer = QueueProducer(bootstrap, return_successes=True)
        for number in range(MESSAGES):
            producer.input(ProducerMessage(topic="arrivals", value=b"flight %d" % number, metadata=number))
        producer.async_close()
        for message in producer.successes():
            print(f"message {message.metadata} is at offset {message.offset}")

        with PartitionConsumers(bootstrap) as consumers:
            flights = consumers.consume_partition("arrivals", 0, OLDEST)
            for record in islice(flights, MESSAGES):
                print(f"{record.value.decode()} of {flights.high_water_mark_offset}")


if __name__ == "__main__":
    main()
