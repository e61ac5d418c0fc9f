"""Commit after each message, as with kafka-go's FetchMessage and CommitMessages."""

from __future__ import annotations

from embedded import broker

from kproto import Admin, Consumer, Producer

MESSAGES = 9


def main() -> None:
    with broker(__doc__ or "", {"payments": 3}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(MESSAGES):
                producer.send("payments", b"%d" % number, partition=number % 3)

        values: list[int] = []
        with Consumer(
            bootstrap, group_id="bookkeeping", auto_offset_reset="earliest", enable_auto_commit=False
        ) as reader:
            reader.subscribe(["payments"])
            while len(values) < MESSAGES:
                message = next(reader)  # FetchMessage
                values.append(int(message.value or b""))
                print(f"{message.topic_partition} offset {message.offset}: {values[-1]}")
                reader.commit({message.topic_partition: message.offset + 1})  # CommitMessages
        assert sorted(values) == list(range(MESSAGES))

        with Admin(bootstrap) as admin:
            lag = admin.group("bookkeeping").total_lag
        assert lag == 0
        print(f"{len(values)} payments, {lag} not committed")


if __name__ == "__main__":
    main()
