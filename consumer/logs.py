"""The logger of the clients, `kproto.consumer`.

Handlers and filters of this logger are code of the application. Their exceptions are reported as `logging`
does (a traceback on stderr, unless `logging.raiseExceptions` is off), and stop no client.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any


class _Log(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **more: Any) -> None:
        try:
            super().log(level, msg, *args, stacklevel=stacklevel + 1, **more)
        except Exception:
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


log = _Log(logging.getLogger("kproto.consumer"), {})
