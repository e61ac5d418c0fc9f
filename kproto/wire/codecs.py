"""The registry of the codecs that messages use.

Codecs import `message`, so `message` cannot import them and finds them here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any], bytes]


class Codecs(msgspec.Struct, frozen=True):
    """The functions that messages encode and decode with. Pass them to `register`."""

    decoder: Callable[[Any, int], Decoder]
    encoder: Callable[[Any, int], Encoder]
    view_decoder: Callable[[Any, int], Decoder]
    piece_encoder: Callable[[Any, int], Callable[[Any], list[bytes]]]
    # Decode with the interpreter, which reports the field and the offset of an error: (class, data, offset,
    # version).
    read: Callable[[Any, bytes, int, int], tuple[Any, int]]
    # Encode with the interpreter, which reports the field of an error: (message, version).
    write: Callable[[Any, int], bytes]
    # Return the docstring of a declaration: (class, its own docstring).
    describe: Callable[[Any, str], str]


registered: list[Codecs] = []


def register(codecs: Codecs) -> None:
    """Make all messages use `codecs`."""
    registered[:] = [codecs]


class Compiled(dict[int, Any]):
    """Map version -> compiled function, compiled at its first use.

    `kind` names the compiling function in `Codecs`.
    """

    def __init__(self, message: Any, kind: str) -> None:
        self.message = message
        self.kind = kind

    def __missing__(self, version: int) -> Any:
        self[version] = compiled = getattr(registered[0], self.kind)(self.message, version)
        return compiled
