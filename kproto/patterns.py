"""Patterns that somebody else wrote: a user's, a request's, another client's.

Python warns whoever compiles `[[:alpha:]]` or `[a||b]` that these may mean something else one day. That is
for those who have the pattern in their own source; whoever runs a broker can do nothing about it.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache


@lru_cache(maxsize=128)
def compiled(pattern: str) -> re.Pattern[str]:
    """Python's `re.compile`, without that warning; raises what `re.compile` raises."""
    # Not `catch_warnings`, which other threads would fall into.
    warnings.filterwarnings(
        "ignore", "Possible (nested set|set )", FutureWarning, rf"{re.escape(__name__)}\Z"
    )
    return re.compile(pattern)
