"""Generated source: run it, and let tracebacks, debuggers and `inspect` see its lines."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any


def build(source: str, filename: str, names: Mapping[str, object]) -> dict[str, Any]:
    """Run `source` with `names` as its globals and return these globals.

    The text is filed in `linecache` as `filename`, which has to be unique and in angle brackets, as `attrs`
    does: a traceback through generated code then shows the failing line.
    """
    namespace: dict[str, Any] = dict(names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    return namespace
