"""Each byte of a message belongs to one span (a field's bytes), up to the byte where decoding fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError
from kproto.messages import index
from kproto.testing.strategies import versioned
from kproto.wire.message import Message
from kproto.wire.spans import AnnotatedMessage, annotate, value_text


def cover(reading: AnnotatedMessage[Message], start: int) -> int:
    """Check that each span begins at the end of the previous one; return the last end."""
    for span in reading.spans:
        assert span.start == start
        assert span.end >= start
        start = span.end
    return start


@given(st.sampled_from(index.names()), st.data())
def test_spans_cover_every_byte_once(name: str, data: st.DataObject) -> None:
    cls = index.message_class(name)
    version, message = data.draw(versioned(cls, unknown_tags=True))
    raw = message.encode(version)
    reading = annotate(cls, b"xy" + raw + b"z", 2, version)
    assert reading.error is None
    assert reading.message == message
    assert cover(reading, 2) == reading.end == 2 + len(raw)


@given(st.sampled_from(index.names()), st.data())
def test_malformed_bytes_have_the_spans_before_the_error_of_the_codec(name: str, data: st.DataObject) -> None:
    cls = index.message_class(name)
    version, message = data.draw(versioned(cls))
    raw = bytearray(message.encode(version))
    if raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
        del raw[data.draw(st.integers(0, len(raw)) | st.just(len(raw))) :]
    broken = bytes(raw)
    reading = annotate(cls, broken, 0, version)
    end = cover(reading, 0)
    if reading.error is None:
        assert reading.message is not None
        assert cls.decode(broken, version).encode(version) == reading.message.encode(version)
        assert end == reading.end
    else:
        with pytest.raises(DecodeError) as refused:
            cls.decode(broken, version)
        assert str(refused.value) == str(reading.error)
        assert end <= len(broken)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (-5, "-5"),
        ("a" * 61, f'"{"a" * 57}..."'),
        (b"", "0 bytes"),
        (b"range", '5 bytes "range"'),
        (b"\0\1", "2 bytes 0001"),
        (bytes(17), f"17 bytes {'00' * 16}..."),
    ],
)
def test_a_value_is_formatted_in_one_short_line(value: object, text: str) -> None:
    assert value_text(value) == text
