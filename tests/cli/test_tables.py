"""Tables that commands print keep their columns, whatever text the cells contain."""

from __future__ import annotations

import pytest

from kproto.cli.tables import print_table


def test_columns_have_a_least_width_and_grow_with_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("NAME", 6), ("N", 1)], [("a", 1), ("longer-name", None)])
    assert capsys.readouterr().out == "NAME        N\na           1\nlonger-name -\n"
    print_table([("NAME", 6), ("N", 3)], [])
    assert capsys.readouterr().out == "NAME   N\n"


def test_unprintable_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("NAME", 1)], [("a\x1b[31m\nb\u202e",)])
    assert capsys.readouterr().out == "NAME\na\\u001b[31m\\u000ab\\u202e\n"
