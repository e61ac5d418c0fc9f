"""A consumer with two loops, as in sarama-cluster.

One loop handles messages. The other prints rebalances, errors and a periodic line that shows that the
service is alive, even while the handler is blocked.
"""

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
    """A handler that marks messages and puts its output lines into `lines` for the printing loop."""

    def __init__(self) -> None:
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.stop = threading.Event()
        self.count = 0
        self.lock = threading.Lock()

    def setup(self, session: Any) -> None:
        self.lines.put(f"notification: claimed {session.claims}")

    def consume_claim(self, session: Any, claim: Any) -> None:
        for message in claim:
            print(f"input message, partition {message.partition}, offset {message.offset}: {message.value}")
            session.mark_message(message)
            with self.lock:
                self.count += 1
            if self.count == MESSAGES:
                self.stop.set()

    def cleanup(self, session: Any) -> None:
        self.lines.put(f"notification: released {session.claims}")

    def print_lines(self) -> None:
        line = ""
        while line != QUIT:
            try:
                line = self.lines.get(timeout=ALIVE_S)
            except Empty:
                line = "consumer alive"
            print(line)


def main() -> None:
    service = Service()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: service.stop.set())
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
            while not service.stop.is_set():
                group.consume(["advertisements"], service)

        def errors() -> None:
            for error in group.errors():
                service.lines.put(f"error: {error}")

        loops = [threading.Thread(target=target) for target in (consume, errors, service.print_lines)]
        for loop in loops:
            loop.start()
        service.stop.wait()
        group.close()
        service.lines.put(QUIT)
        for loop in loops:
            loop.join()


if __name__ == "__main__":
    main()
