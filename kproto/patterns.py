"""Compile regular expressions that come from users, requests or other clients.

Python warns that a pattern such as `[[:alpha:]]` or `[a||b]` may change its meaning in a future release. The
warning is meant for the author of the pattern, but would reach the operator of a broker. So this module
suppresses it.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache


@lru_cache(maxsize=128)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern as `re.compile` does, without the warning about possible nested sets.

    Raises re.error for every invalid pattern. `re.compile` would raise OverflowError for too large a
    repetition, and RecursionError for too deeply nested groups.
    """
    # A global filter, because `catch_warnings` is not thread-safe.
    warnings.filterwarnings(
        "ignore", "Possible (nested set|set )", FutureWarning, rf"{re.escape(__name__)}\Z"
    )
    try:
        return re.compile(pattern)
    except OverflowError as error:
        raise re.error(str(error), pattern) from None
    except RecursionError:
        raise re.error("the groups are nested too deeply", pattern) from None
