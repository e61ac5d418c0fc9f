"""The codecs of record batches, one file each: the forms that exist in topics, read by whatever is fastest.

Each has `compress(data, level)`, and `decompress_into(data, out)`, which fills the start of `out` and says
how far, or raises `Full`. How far anything may grow is decided by `kproto.records.compression`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType

from ...errors import MissingExtra


class CodecError(ValueError):
    """Compressed bytes that are broken, or that grow beyond their allowance. Never leaves kproto.records."""


class Full(Exception):
    """The output buffer was too small; says nothing about the input. The buffer holds the first bytes."""


@cache
def cramjam(codec: str) -> ModuleType:
    """The package's module of this name; `MissingExtra` without it."""
    try:
        import cramjam as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra(f"compression {codec}", "cramjam", "compression") from None
    module: ModuleType = getattr(package, codec)
    return module


def into(unpack: Callable[..., int], data: memoryview, out: memoryview) -> int:
    """What cramjam unpacks, with our errors."""
    try:
        return unpack(data, out)
    except Exception as error:  # cramjam.DecompressionError
        if "whole buffer" in str(error):
            raise Full from None
        raise CodecError(str(error)) from None
