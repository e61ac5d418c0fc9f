"""Read new messages one by one, as with kafka-go's Reader, and print errors."""

from __future__ import annotations

from embedded import broker

from kproto import Consumer, Producer
from kproto.errors import KprotoError

MESSAGES = 6


def main() -> None:
    with (
        broker(__doc__ or "", {"advertisements": 3}) as bootstrap,
        Consumer(
            bootstrap,
            group_id="reader",
            auto_offset_reset="latest",
            auto_commit_interval_ms=1_000,
            max_poll_records=2_000,
            fetch_max_bytes=10_000_000,
        ) as reader,
    ):
        reader.subscribe("advertisements")
        while not reader.assignment():
            reader.poll(0.1)
        for partition in reader.assignment():
            reader.position(partition)  # wait until the start position, which is the log's end, is known

        with Producer(bootstrap) as producer:
            for number in range(MESSAGES):
                producer.send("advertisements", b"shown %d" % number, partition=number % 3)

        count = 0
        while count < MESSAGES:
            try:
                message = next(reader)
            except KprotoError as error:
                print(f"consume error: {error}")
                continue
            print(f"input message, partition {message.partition}, offset {message.offset}: {message.value!r}")
            count += 1
        print(f"{count} messages")


if __name__ == "__main__":
    main()
