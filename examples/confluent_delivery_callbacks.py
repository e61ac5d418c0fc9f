"""Send JSON with a delivery callback for each record, as with confluent-kafka's produce and poll(0)."""

from __future__ import annotations

from typing import Any

import msgspec
from embedded import broker

from consumer.serializers import JsonDeserializer, JsonSerializer
from kproto import Consumer, Producer

DELIVERED: list[int] = []
FAILED: list[BaseException] = []


class User(msgspec.Struct):
    name: str
    favourite_number: int


USERS = [User("Alice", 7), User("Bob", 12), User("Carol", 1)]


def on_delivery(delivery: Any) -> None:
    """Report where a record was written. kproto calls this in its own thread, so poll(0) is not needed."""
    error = delivery.exception()
    if error is not None:
        FAILED.append(error)
    else:
        DELIVERED.append(delivery.result().offset)


def main() -> None:
    with broker(__doc__ or "", {"users": 1}) as bootstrap:
        with Producer(bootstrap, value_serializer=JsonSerializer()) as producer:
            for user in USERS:
                producer.send("users", user, key=user.name.encode()).add_done_callback(on_delivery)
            producer.flush(10)  # raises an error if a record was not written
        assert len(DELIVERED) == len(USERS)
        assert FAILED == []

        with Consumer(
            bootstrap,
            group_id="user-readers",
            auto_offset_reset="earliest",
            value_deserializer=JsonDeserializer(User),
        ) as consumer:
            consumer.subscribe(["users"])
            users: list[User | None] = []
            while len(users) < len(USERS):
                users += [record.value for record in consumer.poll(1.0)]
            consumer.commit()
        assert users == USERS
        print(f"{len(DELIVERED)} delivered, {len(users)} read")


if __name__ == "__main__":
    main()
