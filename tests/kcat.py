"""The flags of kcat 1.7.1, its last release."""

from __future__ import annotations

from typing import Final

# Some builds lack -r and -M. -U, for kcat's own tests, is not in its help text.
FLAGS: Final = "PCGLQMUtpbzoeEDKkHOdqvFXcTufZlVhsrJm"
