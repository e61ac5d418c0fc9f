"""One message at a time: send, wait until all replicas have it, and say where it is."""

from __future__ import annotations

from embedded import broker

from kproto import Producer
from kproto.errors import KprotoError


def main() -> None:
    with (
        broker(__doc__ or "", {"flights": 3}) as bootstrap,
        Producer(bootstrap, acks="all", linger_ms=0) as producer,
    ):
        for key, value in [(b"k1", b"v1"), (b"k2", b"v2"), (b"k1", b"v3")]:
            try:
                where = producer.send("flights", value, key=key).result(10)
            except KprotoError as error:
                print(f"{key.decode()}: failed: {error}")
            else:
                print(f"{key.decode()}: partition {where.partition} offset {where.offset}")


if __name__ == "__main__":
    main()
