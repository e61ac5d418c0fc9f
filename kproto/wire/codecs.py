"""What messages are encoded and decoded with: codecs read declarations, so they are registered later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any], bytes]


class Codecs(msgspec.Struct, frozen=True):
    """All of them. Next: `register`."""

    decoder: Callable[[Any, int], Decoder]
    encoder: Callable[[Any, int], Encoder]
    view_decoder: Callable[[Any, int], Decoder]
    piece_encoder: Callable[[Any, int], Callable[[Any], list[bytes]]]
    # Read a message slowly, and say what is wrong with it, and where.
    read: Callable[[Any, bytes, int, int], tuple[Any, int]]
    # The same for writing.
    write: Callable[[Any, int], bytes]
    # The docstring of a declaration, which may have one of its own.
    describe: Callable[[Any, str], str]


registered: list[Codecs] = []


def register(codecs: Codecs) -> None:
    """Let all messages use these."""
    registered[:] = [codecs]


class Compiled(dict[int, Any]):
    """version -> compiled function, made at its first use; `kind` is the name of its maker in `Codecs`."""

    def __init__(self, message: Any, kind: str) -> None:
        self.message = message
        self.kind = kind

    def __missing__(self, version: int) -> Any:
        self[version] = made = getattr(registered[0], self.kind)(self.message, version)
        return made
