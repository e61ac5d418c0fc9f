"""The flags of kcat 1.7.1, its last release."""

from __future__ import annotations

from typing import Final

# Some builds lack -r and -M. The help text does not contain -U, which is for kcat's own tests.
FLAGS: Final = "PCGLQMUtpbzoeEDKkHOdqvFXcTufZlVhsrJm"
