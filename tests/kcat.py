"""The flags of kcat 1.7.1, its last release."""

from __future__ import annotations

from typing import Final

# The flags include -r and -M, which some builds lack, and -U, which the help text omits because it is for
# kcat's own tests.
FLAGS: Final = "PCGLQMUtpbzoeEDKkHOdqvFXcTufZlVhsrJm"
