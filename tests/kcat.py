"""The flags of kcat 1.7.1, its last release."""

from __future__ import annotations

from typing import Final

# -r and -M are optional when kcat is built, and -U, its own tests, is not in its help text.
FLAGS: Final = "PCGLQMUtpbzoeEDKkHOdqvFXcTufZlVhsrJm"
