"""Write and read JSON, as kafka-python's introductory example does."""

from __future__ import annotations

import json
from typing import Any

from embedded import broker

from kproto import Consumer, Producer

FLIGHTS = [{"flight": "UA1", "to": "BER"}, {"flight": "UA2", "to": "SFO"}]


def to_json(topic: str, value: Any, headers: Any) -> bytes:
    return json.dumps(value).encode()


def from_json(topic: str, data: bytes, headers: Any) -> Any:
    return json.loads(data)


def main() -> None:
    with broker(__doc__ or "", {"json-flights": 1}) as bootstrap:
        with Producer(bootstrap, value_serializer=to_json) as producer:
            for flight in FLIGHTS:
                written = producer.send("json-flights", flight, key=flight["flight"].encode()).result(10)
                print(f"{flight['flight']} is at offset {written.offset}")

        with Consumer(
            bootstrap, group_id="json-readers", auto_offset_reset="earliest", value_deserializer=from_json
        ) as consumer:
            consumer.subscribe(["json-flights"])
            flights: list[Any] = []
            while len(flights) < len(FLIGHTS):  # a service would poll forever
                flights += [record.value for record in consumer.poll(1.0)]
            consumer.commit()
        assert flights == FLIGHTS
        print(f"read {flights}")


if __name__ == "__main__":
    main()
