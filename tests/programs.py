"""The programs of examples/, each with a string that its output must contain."""

from __future__ import annotations

from typing import Final

OUTPUTS: Final = {
    "group_with_handler.py": "12 messages",
    "group_with_manual_commit.py": "orders-0: ",
    "group_with_two_loops.py": "consumer quit finish",
    "reader.py": "6 messages",
    "read_message.py": "6 messages",
    "group_that_survives_growth.py": "100 of 100 read, none lost: True",
    "synchronous_producer.py": "k1: partition",
    "one_partition.py": "flight 4 of 5",
}
