"""Consume in a group until SIGTERM, then close the group. sarama's example cancels a context instead."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from embedded import broker

from kproto import ConsumerGroup, Producer
from kproto.errors import IllegalState

MESSAGES = 12


class Handler:
    def __init__(self) -> None:
        self.values: list[bytes] = []  # appended by one thread per partition

    def setup(self, session: Any) -> None:
        print(f"claims {session.claims}")

    def consume_claim(self, session: Any, claim: Any) -> None:
        for message in claim:  # ends when the group is closed or rebalances
            self.values.append(message.value)
            session.mark_message(message)
            if len(self.values) == MESSAGES:
                os.kill(os.getpid(), signal.SIGTERM)  # as Kubernetes ends a pod

    def cleanup(self, session: Any) -> None:
        print("the claims have ended, and their marks are committed next")


def main() -> None:
    with broker(__doc__ or "", {"shutdown": 3}) as bootstrap:
        with Producer(bootstrap) as producer:
            for number in range(MESSAGES):
                producer.send("shutdown", b"%d" % number, partition=number % 3)

        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        handler = Handler()
        group = ConsumerGroup(bootstrap, group_id="shutdown-readers", auto_offset_reset="earliest")

        def consume() -> None:
            try:
                while True:  # consume returns after each rebalance
                    group.consume(["shutdown"], handler)
            except IllegalState:  # the group is closed
                pass

        thread = threading.Thread(target=consume)
        thread.start()
        try:
            stop.wait()
        finally:  # also after Ctrl-C
            group.close()
            thread.join()
        assert sorted(map(int, handler.values)) == list(range(MESSAGES))
        print(f"{len(handler.values)} messages, then closed")


if __name__ == "__main__":
    main()
