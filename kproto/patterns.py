"""Compile regular expressions that come from users, requests or other clients.

Python warns that patterns such as `[[:alpha:]]` or `[a||b]` may change their meaning in future. The warning
is for the authors of patterns; the operator of a broker can do nothing about it.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache


@lru_cache(maxsize=128)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile as `re.compile` does, without the warning about possible nested sets.

    Raises what `re.compile` raises.
    """
    # `catch_warnings` is not thread-safe.
    warnings.filterwarnings(
        "ignore", "Possible (nested set|set )", FutureWarning, rf"{re.escape(__name__)}\Z"
    )
    return re.compile(pattern)
