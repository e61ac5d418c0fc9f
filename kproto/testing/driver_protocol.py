"""Commands, output lines and options that all drivers of this package share; `driver` describes them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from queue import Empty, SimpleQueue
from typing import TextIO

from ..group.subscription import TopicPartition

# The time (ms) for which each poll of a driver waits for records.
POLL_MS = 50
# The pause (ms) of a driver after a failed poll.
AFTER_ERROR_MS = 300

# A driver's options that configure the application. All other options configure the client.
DRIVERS_OWN = {"commit_in_revoke", "revoke_ms", "manual_poll", "once", "wait_ms"}


class Commands:
    """The commands of a stream, one per line. A separate thread reads them.

    The end of the stream counts as the command `close`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._lines: SimpleQueue[str] = SimpleQueue()
        # The thread that reads the stream calls this function after each command.
        self.wake: Callable[[], None] = lambda: None
        self.ended = False  # Whether the command `close` was read. No command follows `close`.
        stream_object: object = stream
        # Input bytes that cannot be decoded become backslash escapes.
        if isinstance(stream_object, TextIOWrapper):
            stream_object.reconfigure(errors="backslashreplace")
        threading.Thread(target=self._read_lines, args=(stream,), daemon=True).start()

    def _read_lines(self, stream: TextIO) -> None:
        """Queue each line and call `wake`, until the stream ends; then queue `close`."""
        try:
            for line in stream:
                if line.strip():
                    self._lines.put(line.strip())
                    self.ended = self.ended or line.split()[0] == "close"
                    self.wake()
        finally:
            self.ended = True
            self._lines.put("close")
            self.wake()

    @property
    def waiting(self) -> bool:
        """Whether a command has been read, but `next` has not returned it yet."""
        return not self._lines.empty()

    def next(self, seconds: float = 0) -> str | None:
        """Return the next command, or None if no command arrives within `seconds` seconds."""
        try:
            return self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
        except Empty:
            return None


def print_line(*words: object) -> None:
    """Print one line with a single write, because another thread may print a line at the same time."""
    sys.stdout.write(" ".join([f"{time.time():.6f}", *map(str, words)]) + "\n")
    sys.stdout.flush()


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return a sorted list of partitions as text: TOPIC:PARTITION, separated by spaces."""
    return " ".join(sorted(f"{partition.topic}:{partition.partition}" for partition in partitions))


def parse_partition(text: str) -> tuple[TopicPartition, int | None]:
    """Parse T:P or T:P:OFFSET; return the partition and the offset, which is None for T:P."""
    topic, number, *offset = text.split(":")
    return TopicPartition(topic, int(number)), int(offset[0]) if offset else None
