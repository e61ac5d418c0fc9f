"""A consumer group with a handler, as in sarama. Marked offsets are committed every second and at the end."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from embedded import broker

from kproto import ConsumerGroup, Producer
from kproto.errors import IllegalState

MESSAGES = 12


class Printer:
    """Print and mark each message, and set `done` after the last one."""

    def __init__(self) -> None:
        self.count = 0
        self.done = threading.Event()
        self.lock = threading.Lock()

    def setup(self, session: Any) -> None:
        print(f"setup {session.member_id.partition('-')[0]} {session.claims}")

    def consume_claim(self, session: Any, claim: Any) -> None:
        for message in claim:
            with self.lock:
                print(
                    f"{message.topic}-{message.partition} offset {message.offset}: {message.value.decode()}"
                )
                self.count += 1
            session.mark_message(message)
            if self.count >= MESSAGES:
                self.done.set()

    def cleanup(self, session: Any) -> None:
        print("cleanup")


def main() -> None:
    with broker(__doc__ or "", {"flights": 3}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(MESSAGES):
                producer.send("flights", f"flight {number}".encode(), key=b"%d" % number)

        printer = Printer()
        group = ConsumerGroup(bootstrap, group_id="readers", auto_offset_reset="earliest")

        def errors() -> None:
            for error in group.errors():
                print("error:", error)

        def consume() -> None:
            # After close(), consume() raises IllegalState, and this thread ends.
            with suppress(IllegalState):
                # consume() returns after each rebalance, so it is called in a loop.
                while not printer.done.is_set():
                    group.consume(["flights"], printer)

        threads = [threading.Thread(target=errors), threading.Thread(target=consume)]
        for thread in threads:
            thread.start()
        try:
            printer.done.wait(30)
        finally:  # Close the group even after Ctrl-C, because its threads run until it is closed.
            group.close()
        for thread in threads:
            thread.join()
        print(f"{printer.count} messages")


if __name__ == "__main__":
    main()
