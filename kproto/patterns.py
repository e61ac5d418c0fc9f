"""Compile regular expressions that come from users, requests or other clients.

Python warns that patterns such as `[[:alpha:]]` or `[a||b]` may change their meaning in a future release. The
warning is meant for the author of a pattern, but here the operator of a broker would see it.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache


@lru_cache(maxsize=128)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern as `re.compile` does, without the warning about possible nested sets.

    The errors are those of `re.compile`.
    """
    # A global filter, because `catch_warnings` is not thread-safe.
    warnings.filterwarnings(
        "ignore", "Possible (nested set|set )", FutureWarning, rf"{re.escape(__name__)}\Z"
    )
    return re.compile(pattern)
