"""The flags of kcat 1.7.1, its last release."""

from __future__ import annotations

from typing import Final

# They include -r and -M, which a build may omit, and -U (kcat's own tests), which its help text omits.
FLAGS: Final = "PCGLQMUtpbzoeEDKkHOdqvFXcTufZlVhsrJm"
