"""The help of each command describes its options, and fits terminals of 80 and of 60 columns."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from kproto.cli import build_parser
from kproto.cli.arguments import Parser

WIDE = 1_000
# Arguments that keep a lower-case name. The errors of `kproto decode` use the name "data" both for this
# argument and for the bytes of a file.
LOWER_CASE = ("data",)


def parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    for child in parser.subparsers().values():
        yield from parsers(child)


@pytest.mark.parametrize("columns", [80, 60])
def test_no_line_of_a_help_is_too_long_and_no_word_is_divided(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser, _ = build_parser()
    for each in parsers(parser):
        monkeypatch.setenv("COLUMNS", str(WIDE))
        words = each.format_help().split()
        monkeypatch.setenv("COLUMNS", str(columns))
        text = each.format_help()
        assert [line for line in text.splitlines() if len(line) > columns] == [], each.prog
        assert sorted(text.split()) == sorted(words), each.prog


def test_an_option_and_its_value_are_on_one_line_of_the_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    parser, commands = build_parser("topics")
    [create] = [each for each in parsers(parser) if each.prog == "kproto topics create"]
    assert list(commands) == ["topics"]
    first, *lines = create.format_usage().splitlines()
    assert first == "usage: kproto topics create [-h] --bootstrap HOST:PORT"
    begin = " " * len("usage: kproto topics create ")
    assert [line.removeprefix(begin) for line in lines if line] == [
        "[--command-config FILE]",
        "[--timeout SECONDS] [--json]",
        "[--partitions N]",
        "[--replication-factor N]",
        "[--config NAME=VALUE]",
        "[--if-not-exists] TOPIC",
        "[TOPIC ...]",
    ]


def test_each_command_and_option_is_described() -> None:
    """A positional argument needs no description if its name describes it."""
    parser, _ = build_parser()
    for each in parsers(parser):
        for action in each._actions:
            if isinstance(action, argparse._SubParsersAction):
                described = {choice.dest for choice in action._choices_actions if choice.help}
                assert described == set(action.choices), each.prog
            elif action.option_strings:
                assert action.help, (each.prog, action.option_strings)
            elif action.choices is None and action.dest not in LOWER_CASE:
                assert str(action.metavar).isupper(), (each.prog, action.dest)
