"""The codecs of record batches. Each codec's module reads every variant of its format that occurs in topics.

Each module has `compress(data, level)` and `decompress_into(data, out)`.

`decompress_into` writes to the start of `out` and returns the number of bytes. It raises `Full` if `out` is
too small. `kproto.records.compression` limits the size of `out`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType

from ...errors import MissingExtra


class CodecError(ValueError):
    """Compressed bytes are malformed, or decompress to more bytes than allowed.

    The functions of kproto.records convert this error to a RecordError.
    """


class Full(Exception):
    """The output buffer is too small for the decompressed data, or the input is malformed."""


@cache
def cramjam(codec: str) -> ModuleType:
    """Return cramjam's module for this codec. Raises `MissingExtra` if cramjam is not installed."""
    try:
        import cramjam as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra(f"compression {codec}", "cramjam", "compression") from None
    module: ModuleType = vars(package)[codec]
    return module


def into(unpack: Callable[..., int], data: memoryview, out: memoryview) -> int:
    """Decompress with cramjam's function `unpack`; convert its exceptions to `Full` or `CodecError`."""
    try:
        return unpack(data, out)
    except Exception as error:  # cramjam.DecompressionError
        if "whole buffer" in str(error):
            raise Full from None
        raise CodecError(str(error)) from None
