"""Send one message at a time, as with sarama's SyncProducer: wait for all replicas, and print the offset."""

from __future__ import annotations

from embedded import broker

from consumer import ProducerMessage, SyncProducer
from kproto.errors import KprotoError


def main() -> None:
    with (
        broker(__doc__ or "", {"flights": 3}) as bootstrap,
        SyncProducer(bootstrap, acks="all") as producer,
    ):
        for key, value in [(b"k1", b"v1"), (b"k2", b"v2"), (b"k1", b"v3")]:
            try:
                partition, offset = producer.send_message(
                    ProducerMessage(topic="flights", key=key, value=value)
                )
            except KprotoError as error:
                print(f"{key.decode()}: failed: {error}")
            else:
                print(f"{key.decode()}: partition {partition} offset {offset}")


if __name__ == "__main__":
    main()
