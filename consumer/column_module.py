"""Imports the decoder of columns in the background, so that no caller waits for the import.

The import of numpy and pyarrow takes 150 to 250 ms of CPU time. It must block neither a poll nor an event
loop.

The first fetch with many records starts the import in a separate thread. Until the import is complete,
records are decoded one by one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from functools import cache
from typing import Any, Final

from kproto.errors import MissingExtra

_MODULE: Final = "kproto.records.columns"
# Longest time (s) for which a fork waits for the import of the decoder. The import usually takes 0.3 s.
_FORK_TIMEOUT_S: Final = 10


@cache
def load_columns() -> Any:
    """Return the module `kproto.records.columns`, or None if the packages that it needs are missing."""
    try:
        from kproto.records import columns
    except MissingExtra:
        return None
    return columns


def columns_if_loaded() -> Any:
    """Return the module `kproto.records.columns`, or start its import and return None."""
    # A module that another thread is still importing is in `sys.modules`, but must not be used yet.
    module = sys.modules.get(_MODULE)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return module
    _start_import()
    return None


@cache
def _start_import() -> None:
    """Import the decoder in a new thread. Further calls have no effect."""
    # The thread is not a daemon, because the import of a C library must not be interrupted when the process
    # ends.
    thread = threading.Thread(target=load_columns, name="kproto import")
    # An interpreter that is shutting down cannot start threads.
    with contextlib.suppress(RuntimeError):
        thread.start()
        if hasattr(os, "register_at_fork"):
            # A fork waits for the import to end. Otherwise the module's import lock would stay locked in the
            # child process.
            os.register_at_fork(before=lambda: thread.join(_FORK_TIMEOUT_S))
