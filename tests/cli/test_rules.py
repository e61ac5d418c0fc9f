"""`kproto rules` prints a rule's text, the (event, state) pairs whose handlers apply it, and its tests."""

from __future__ import annotations

import pytest

from kproto.cli import main
from kproto.inspect import rules


def test_every_rule_is_listed_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == rules.numbers()
    assert {"R64", "M64", "X1", "I1"} <= set(listed)


def test_a_rule_is_printed_with_its_text_its_cells_and_the_source_of_its_tests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    number = next(number for number in rules.cells() if rules.tests().get(number))
    assert main(["rules", number.lower()]) == 0
    out = capsys.readouterr().out
    text = " ".join(rules.definitions()[number].split())
    assert " ".join(out.split()).startswith(f"{number} {text} Cells")
    cell, test = rules.cells()[number][0], rules.tests()[number][0]
    assert f"  {cell.machine}: {cell.kind} in " in out
    assert f"{test.path}::{test.name}" in out
    assert f"def {test.name}(" in out


def test_a_long_text_is_indented_below_the_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = next(iter(rules.cells()))
    monkeypatch.setattr(rules, "definitions", lambda: {number: "word " * 30})
    assert main(["rules", number]) == 0
    first, second, empty, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{number}  " + " ".join(["word"] * 19)
    assert second == " " * (len(number) + 2) + " ".join(["word"] * 11)
    assert empty == ""


def test_without_the_source_distribution_a_rule_has_its_cells_but_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = next(iter(rules.cells()))
    monkeypatch.setattr(rules, "definitions", dict[str, str])
    assert main(["rules", number]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{number}  (the text is in the source distribution)", "", "Cells"]
    assert main(["rules", "--state", "stable"]) == 0
    (text,) = {line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()}
    assert text == "(its text is in the source distribution)"


def test_the_rules_of_a_state_and_an_event_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--state", "stable", "--event", "SyncGroup"]) == 0
    few = capsys.readouterr().out.splitlines()
    assert main(["rules", "--event", "SyncGroup"]) == 0
    more = capsys.readouterr().out.splitlines()
    assert 0 < len(few) < len(more) < len(rules.numbers())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("R9999", "RULE='R9999' is not allowed; `kproto rules` lists"),
        ("--state Dancing", "--state='Dancing' is not allowed; allowed: Dead, Empty"),
        ("--event ?", "--event='?' is not allowed"),
        (
            "R64 --state Stable",
            "RULE='R64' is not allowed; allowed only without --state, --event and --search",
        ),
        ("R64 --search delay", "allowed only without --state, --event and --search"),
        ("--event Dancing", "--event='Dancing' is not allowed"),
    ],
)
def test_an_unknown_rule_state_or_event_is_rejected(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_rules_are_found_by_the_words_of_their_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--search", "Initial DELAY"]) == 0
    numbers = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"R142", "R143", "R144"} <= set(numbers)
    assert len(numbers) < 20
    assert main(["rules", "--search", "initial delay", "--event", "SyncGroup"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["rules", "--search", "no such words"]) == 0
    assert capsys.readouterr().err == "kproto rules: no text of a rule contains all these words\n"


@pytest.mark.parametrize("words", ["--state closed", "--state Ongoing --event JoinGroup"])
def test_a_state_without_rules_prints_nothing_and_is_no_error(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", *words.split()]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "kproto rules: no rule applies to this state and event\n")
