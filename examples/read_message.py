"""confluent-kafka's ReadMessage: wait a second for a message; a timeout is no error, others are printed."""

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
            seen = 0
            while seen < MESSAGES:
                try:
                    messages = consumer.poll(1.0, max_records=1)
                except KprotoError as error:  # it recovers by itself
                    print(f"Consumer error: {error}")
                    continue
                for message in messages:  # none when the second was over
                    place = f"partition {message.partition}, offset {message.offset}"
                    print(f"input message, {place}: {message.value!r}")
                    seen += 1
        print(f"{seen} messages")


if __name__ == "__main__":
    main()
