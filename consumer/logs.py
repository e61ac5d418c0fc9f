"""The logger of the clients, `kproto.consumer`.

Handlers and filters of this logger are code of the application. An exception in one of them does not stop a
client. As usual in `logging`, the exception's traceback is written to stderr, unless
`logging.raiseExceptions` is off.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

from kproto.printable import Log


class _Log(Log):
    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **more: Any) -> None:
        try:
            super().log(level, msg, *args, stacklevel=stacklevel + 1, **more)
        except Exception:
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


log = _Log(logging.getLogger("kproto.consumer"), {})
