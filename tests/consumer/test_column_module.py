"""The decoder of columns is imported by a separate thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")

SCRIPT = """
import sys, threading
from consumer.column_module import columns_if_loaded
assert columns_if_loaded() is None
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
assert columns_if_loaded() is sys.modules["kproto.records.columns"]
assert threading.active_count() == 1
"""


def test_the_first_fetch_does_not_wait_for_the_import() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_a_fork_waits_for_the_import() -> None:
    """A fork waits until the import of the module is complete.

    If the fork did not wait for the import, the module's import lock would stay locked in the child. The
    child could then never import the module.
    """
    script = """
import os
from consumer.column_module import columns_if_loaded, load_columns
columns_if_loaded()
child = os.fork()
if not child:
    os._exit(0 if load_columns() is columns_if_loaded() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_poll_before_the_import_returns_the_same_records() -> None:
    script = """
import sys
from kproto import Consumer, Producer, TopicPartition, running
with running({"t": 1}) as server:
    with Producer(server.bootstrap) as producer:
        for number in range(1_000): producer.send("t", b"%d" % number)
    with Consumer(server.bootstrap, auto_offset_reset="earliest", max_poll_records=100) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        records = []
        while len(records) < 1_000:
            records += consumer.poll(1)
print([record.offset for record in records] == list(range(1_000)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
