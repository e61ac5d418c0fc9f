"""The logger of the clients, `kproto.consumer`.

Handlers and filters of this logger are application code. Their exceptions do not stop a client. As usual in
`logging`, the traceback is written to stderr, unless `logging.raiseExceptions` is false.
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
