"""sarama-cluster's consumer: one loop takes the messages; another says that the service lives, who has what,
and what went wrong, also while whoever takes the messages is blocked."""

from __future__ import annotations

import signal
import threading
from queue import Empty, SimpleQueue
from typing import Any

from embedded import broker

from kproto import ConsumerGroup, Producer

MESSAGES = 12
ALIVE_S = 5.0
QUIT = "consumer quit finish"


class Service:
    """Takes the messages and marks them. What the other loop says comes through `told`."""

    def __init__(self) -> None:
        self.told: SimpleQueue[str] = SimpleQueue()
        self.over = threading.Event()
        self.taken = 0
        self.lock = threading.Lock()

    def setup(self, session: Any) -> None:
        self.told.put(f"notification: claimed {session.claims}")

    def consume_claim(self, session: Any, claim: Any) -> None:
        for message in claim:
            print(f"input message, partition {message.partition}, offset {message.offset}: {message.value}")
            session.mark_message(message)
            with self.lock:
                self.taken += 1
            if self.taken == MESSAGES:
                self.over.set()

    def cleanup(self, session: Any) -> None:
        self.told.put(f"notification: released {session.claims}")

    def say(self) -> None:
        line = ""
        while line != QUIT:
            try:
                line = self.told.get(timeout=ALIVE_S)
            except Empty:
                line = "consumer alive"
            print(line)


def main() -> None:
    service = Service()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: service.over.set())
    with broker(__doc__ or "", {"advertisements": 3}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(MESSAGES):
                producer.send("advertisements", b"shown %d" % number, partition=number % 3)

        group = ConsumerGroup(
            bootstrap,
            group_id="advertising",
            auto_offset_reset="earliest",
            partition_assignment_strategy="roundrobin",
            auto_commit_interval_ms=1_000,
            fetch_max_wait_ms=800,
            metadata_max_age_ms=60_000,
        )

        def consume() -> None:
            while not service.over.is_set():
                group.consume(["advertisements"], service)

        def errors() -> None:
            for error in group.errors():
                service.told.put(f"error: {error}")

        loops = [threading.Thread(target=one) for one in (consume, errors, service.say)]
        for loop in loops:
            loop.start()
        service.over.wait()
        group.close()
        service.told.put(QUIT)
        for loop in loops:
            loop.join()


if __name__ == "__main__":
    main()
