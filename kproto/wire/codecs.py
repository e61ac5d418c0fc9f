"""The registry of the codecs that messages use.

The codecs import `message`, so `message` cannot import the codecs. Instead `message` looks them up in this
registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any], bytes]


class Codecs(msgspec.Struct, frozen=True):
    """The functions that encode and decode messages. `register` makes all messages use them."""

    decoder: Callable[[Any, int], Decoder]
    encoder: Callable[[Any, int], Encoder]
    view_decoder: Callable[[Any, int], Decoder]
    piece_encoder: Callable[[Any, int], Callable[[Any], list[bytes]]]
    # Decodes a message with the interpreter, whose errors name the invalid field and its offset. Arguments:
    # the class, the data, the offset in the data, and the version.
    read: Callable[[Any, bytes, int, int], tuple[Any, int]]
    # Encodes a message with the interpreter, whose errors name the invalid field. Arguments: the message and
    # the version.
    write: Callable[[Any, int], bytes]
    # Returns the docstring of a declaration, followed by a description of its fields. Arguments: the class,
    # and its docstring in the source.
    describe: Callable[[Any, str], str]


registered: list[Codecs] = []


def register(codecs: Codecs) -> None:
    """Make all messages encode and decode with `codecs`."""
    registered[:] = [codecs]


class Compiled(dict[int, Any]):
    """Maps each version to the function compiled for this version. A function is compiled at its first use.

    `kind` is the name of the attribute of `Codecs` that holds the compiling function.
    """

    def __init__(self, message: Any, kind: str) -> None:
        self.message = message
        self.kind = kind

    def __missing__(self, version: int) -> Any:
        self[version] = compiled = getattr(registered[0], self.kind)(self.message, version)
        return compiled
