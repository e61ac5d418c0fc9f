"""Text from other programs cannot change the lines, the colours or the direction of text around it."""

from __future__ import annotations

import io
import json
import logging

import pytest

from kproto.errors import BrokerError, ConnectionFailed, KprotoError
from kproto.inspect.diagrams import page
from kproto.messages.json_form import one_line
from kproto.printable import Log, escape_lines, escape_unprintable

# A line feed, ESC, a carriage return, C1's CSI, a right-to-left override, and Unicode's line separators.
EVIL = "evil\n2026-11-27 CRITICAL all is fine\x1b[31m\r\x9b31m\u202etxt\u2028\x85\u2066"
SAFE = "evil\\u000a2026-11-27 CRITICAL all is fine\\u001b[31m\\u000d\\u009b31m\\u202etxt\\u2028\\u0085\\u2066"


def test_unprintable_characters_are_escaped() -> None:
    assert escape_unprintable(EVIL) == SAFE
    assert escape_unprintable("Größe 5, 日本") == "Größe 5, 日本"
    assert escape_unprintable("\U000e0001") == "\\udb40\\udc01"


def test_lines_are_kept_by_escape_lines() -> None:
    assert escape_lines("a\nb\r\n") == "a\nb\\u000d\n"


@pytest.mark.parametrize("argument", [EVIL, KprotoError(EVIL), Exception(EVIL)])
def test_arguments_of_log_lines_are_escaped(argument: object) -> None:
    out = io.StringIO()
    logger = logging.getLogger("kproto.test_printable")
    logger.propagate = False
    handler = logging.StreamHandler(out)
    logger.addHandler(handler)
    try:
        Log(logger, {}).warning("%s: %d of %s", argument, 5, "t")
    finally:
        logger.removeHandler(handler)
    assert out.getvalue() == f"{SAFE}: 5 of t\n"


@pytest.mark.parametrize(
    "error",
    [
        KprotoError(EVIL),
        BrokerError(29, "Fetch", EVIL),
        ConnectionFailed(EVIL, "refused"),
        ConnectionFailed("broker:9092", EVIL),
    ],
)
def test_messages_of_errors_are_escaped(error: KprotoError) -> None:
    assert SAFE in str(error)
    assert str(error).isprintable()


def test_a_line_of_json_is_escaped_and_keeps_its_value() -> None:
    line = one_line({"host": EVIL})
    assert line.isprintable()
    assert json.loads(line) == {"host": EVIL}


def test_a_page_is_escaped() -> None:
    html = page(EVIL, [EVIL], [f"<p>{EVIL}</p>"])
    assert all(line.isprintable() for line in html.split("\n"))
