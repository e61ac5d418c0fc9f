"""Read messages one by one, as with confluent-kafka-go's ReadMessage, and print errors except timeouts."""

from __future__ import annotations

from embedded import broker

from kproto import Consumer, Producer
from kproto.errors import KprotoError

MESSAGES = 6


def main() -> None:
    with broker(__doc__ or "", {"advertisements": 3}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(MESSAGES):
                producer.send("advertisements", b"shown %d" % number, partition=number % 3)

        with Consumer(bootstrap, group_id="messages", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("advertisements")
            count = 0
            while count < MESSAGES:
                try:
                    messages = consumer.poll(1.0, max_records=1)
                except KprotoError as error:  # print the error and poll again: the consumer stays usable
                    print(f"Consumer error: {error}")
                    continue
                for message in messages:  # the list is empty if no message arrives within a second
                    position = f"partition {message.partition}, offset {message.offset}"
                    print(f"input message, {position}: {message.value!r}")
                    count += 1
        print(f"{count} messages")


if __name__ == "__main__":
    main()
