"""`kproto.inspect.rules` finds each rule's definition, its cells (event, state) in tables, and its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproto.inspect import rules
from kproto.inspect.machines import TABLES
from kproto.inspect.rules import RuleTest


def test_the_pages_define_the_rules_in_the_order_of_reading() -> None:
    numbers = list(rules.definitions())
    assert [number for page in rules.PAGES for number in rules.definitions_of(page)] == numbers
    assert rules.definitions_of("no such page") == {}
    for number, text in rules.definitions().items():
        assert text
        assert "\n### " not in text
        assert text == text.strip(), number


def test_the_cells_of_a_rule_name_machine_event_and_state() -> None:
    for number, cells in rules.cells().items():
        for cell in cells:
            (kind,) = (kind for kind in TABLES[cell.machine].kinds if kind.name == cell.kind)
            (state,) = (state for state in TABLES[cell.machine].states if state.value == cell.state)
            assert number in TABLES[cell.machine][kind, state].rules
    assert rules.numbers() == list(dict.fromkeys([*rules.definitions(), *rules.cells()]))


def test_the_rules_of_a_state_and_an_event_are_those_of_their_cells() -> None:
    assert set(rules.numbers_in(None, None)) == set(rules.cells())
    for state, event in (("stable", "sync_group"), ("PreparingRebalance", "JoinGroup")):
        expected = {
            number
            for number, cells in rules.cells().items()
            for cell in cells
            if cell.state.lower().replace("_", "") == state.lower()
            and event.lower().replace("_", "") in cell.kind.lower().replace("_", "")
        }
        assert expected <= set(rules.numbers_in(state, event))
        assert set(rules.numbers_in(state, event)) < set(rules.numbers_in(None, event))
        assert set(rules.numbers_in(state, event)) < set(rules.numbers_in(state, None))
    assert rules.numbers_in("no such state", None) == []
    assert rules.numbers_in(None, "no such event") == []
    assert {"Stable", "PreparingRebalance", "Ongoing"} <= set(rules.state_names())


SOURCE = """
@rule("R1", "R2")
@other("R9")
def test_a():
    assert True


class TestGroup:
    @pytest.mark.parametrize("n", [1])
    @pytest.mark.rule("R2")
    async def test_b(self):
        pass


@rule
def test_c(): ...
"""


def test_a_test_pins_the_rules_in_its_decorators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "tests" / "room"
    directory.mkdir(parents=True)
    (directory / "test_it.py").write_text(SOURCE)
    (directory / "stage.py").write_text(SOURCE)
    (directory / "test_without_rules.py").write_text("this is not parsed")
    monkeypatch.setattr(rules, "ROOT", tmp_path)
    # Bypass the cache, because other tests expect it to contain the tests of this project.
    tests = rules.tests.__wrapped__()
    path = "tests/room/test_it.py"
    first = '@rule("R1", "R2")\n@other("R9")\ndef test_a():\n    assert True'
    second = (
        '    @pytest.mark.parametrize("n", [1])\n    @pytest.mark.rule("R2")\n'
        "    async def test_b(self):\n        pass"
    )
    assert tests == {
        "R1": [RuleTest(path, "test_a", first)],
        "R2": [RuleTest(path, "test_a", first), RuleTest(path, "test_b", second)],
    }
