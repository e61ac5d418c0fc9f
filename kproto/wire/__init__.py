"""Declare, encode and decode Kafka's messages. `kproto.messages` contains the declarations of the messages.

The modules `message` and `types` define how messages are declared.

`interpreter` and `compiler` are two codecs that read the declarations. Messages are first encoded and decoded
by the compiler's functions, which are fast. If such a function fails, the interpreter repeats its work and
raises an error that names the field.

`kproto.wire` registers the codecs in `codecs`, so that `message` need not import them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .codecs import Codecs, register
from .message import FRESH, Array, Field, Message, Struct, decode_from, decode_views, encode_pieces, field
from .types import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Primitive,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
    Versions,
)

__all__ = [
    "FRESH",
    "ZERO_UUID",
    "Array",
    "Bool",
    "Bytes",
    "Field",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Primitive",
    "Records",
    "String",
    "Struct",
    "UInt16",
    "UInt32",
    "Uuid",
    "Versions",
    "decode_from",
    "decode_views",
    "encode_pieces",
    "field",
]


def _import_on_call(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a codec function and calls it."""

    def call(*arguments: object) -> Any:
        return getattr(import_module(f".{module}", __name__), name)(*arguments)

    return call


register(
    Codecs(
        decoder=_import_on_call("compiler", "decoder"),
        encoder=_import_on_call("compiler", "encoder"),
        view_decoder=_import_on_call("compiler", "view_decoder"),
        piece_encoder=_import_on_call("compiler", "piece_encoder"),
        read=_import_on_call("interpreter", "decode"),
        write=_import_on_call("interpreter", "encode"),
        describe=_import_on_call("field_docs", "describe"),
    )
)
