"""Break the cells (event, state) of the group's state tables one by one, and run the tests of each rule.

Every rule must be *pinned*: at least one mutant (a broken variant) of one of its cells makes a test of the
rule fail. A cell of a rule lists the rule's number. A test of a rule is a test in tests/group that is marked
with the number.

    python -m tests.rule_mutants            # all rules
    python -m tests.rule_mutants R64 M14    # these rules

A mutant changes one cell. The cell then does nothing, answers with other error codes, or accepts old
responses. A response is old if the member no longer waits for it, or if it belongs to an earlier generation.

The script prints the rules that are not pinned, with their tests. If it prints a rule, its exit status is 1.
tests/test_rule_mutants.py runs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final

import msgspec
import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic import coordinator
from kproto.group.classic.member import table as member
from kproto.inspect import rules
from kproto.machine import Cell, SendResponse, Table, impossible
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.wire.message import Message

TABLES: Final[tuple[Table[Any, Any], ...]] = (coordinator.TABLE, member.TABLE)
Key = tuple[Any, Any]
Mutate = Callable[[Cell], Cell]


def do_nothing(cell: Cell) -> Cell:
    """Return a cell that changes nothing and sends nothing."""

    def act(*arguments: Any) -> None:
        """Change nothing."""

    return cell._replace(act=act)


def answer_other_errors(cell: Cell) -> Cell:
    """Return a cell that answers UNKNOWN_SERVER_ERROR instead of NONE, and NONE instead of an error."""

    def act(context: Any, holder: Any, event: Any) -> None:
        """Call the cell's handler, then replace the error codes in the responses that it sends."""
        before = len(context.actions)
        cell.act(context, holder, event)
        for action in context.actions[before:]:
            if isinstance(action, SendResponse):
                _replace_errors(action.response)

    # The cell declares every error code. Otherwise the check of the declared codes (`Cell.errors`) would
    # detect the mutant before a test of the rule does.
    return cell._replace(act=act, errors=tuple(ErrorCode))


def accept_old_responses(cell: Cell) -> Cell:
    """Return a cell that treats every response as the response to the request in flight.

    A Heartbeat response is treated as a response to a request of the current generation.
    """

    def act(holder: Any, event: Any, now: int, out: Any) -> None:
        """Act on the response to the request in flight."""
        current = holder.rebalance_request or event.request
        if isinstance(event.request, HeartbeatRequest):
            current = HeartbeatRequest(
                group_id=event.request.group_id,
                generation_id=holder.generation,
                member_id=holder.member_id,
            )
        cell.act(holder, msgspec.structs.replace(event, request=current), now, out)

    return cell._replace(act=act)


def _replace_errors(message: Message) -> None:
    for name in type(message).__slots__:  # type: ignore[attr-defined]
        value = getattr(message, name)
        if name.endswith("error_code"):
            setattr(message, name, ErrorCode.NONE if value else ErrorCode.UNKNOWN_SERVER_ERROR)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    _replace_errors(element)


def cells_of(number: str) -> Iterator[tuple[Table[Any, Any], Key]]:
    """Yield the table and the key of each cell that implements a rule."""
    for table in TABLES:
        for key, cell in table.items():
            if number in cell.rules and cell.act is not impossible:
                yield table, key


def mutants_of(table: Table[Any, Any], key: Key) -> Iterator[Mutate]:
    yield do_nothing
    if table is coordinator.TABLE and table[key].errors:
        yield answer_other_errors
    if key[0] in (member.K.JOIN_RESPONSE, member.K.SYNC_RESPONSE, member.K.HEARTBEAT_RESPONSE):
        yield accept_old_responses


@contextmanager
def mutated(table: Table[Any, Any], key: Key, mutate: Mutate) -> Iterator[None]:
    cell = table[key]
    table[key] = mutate(cell)
    try:
        yield
    finally:
        table[key] = cell


def run_tests(tests: list[str]) -> int:
    """Run these tests in this process, and return pytest's exit code."""
    # A mutant may make a test wait forever. Without a mutant, no test takes longer than 0.2 s.
    options = ["-x", "-q", "--tb=no", "-n0", "-p", "no:cacheprovider", "--timeout", "10"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return int(pytest.main([*options, *tests]))


def tests_of(number: str) -> list[str]:
    """Return the tests in tests/group that are marked with a rule, as pytest's node ids."""
    pinning = rules.tests().get(number, [])
    return sorted({f"{test.path}::{test.name}" for test in pinning if test.path.startswith("tests/group/")})


def is_pinned(number: str) -> bool:
    """Return whether a mutant of one of the rule's cells makes a test of the rule fail."""
    tests = tests_of(number)
    for table, key in cells_of(number):
        for mutate in mutants_of(table, key):
            with mutated(table, key, mutate):
                if tests and run_tests(tests) == pytest.ExitCode.TESTS_FAILED:
                    return True
    return False


def main(numbers: list[str]) -> int:
    """Print the rules that are not pinned. Return the exit status."""
    known = {number for table in TABLES for cell in table.values() for number in cell.rules}
    survivors = [number for number in numbers or sorted(known) if not is_pinned(number)]
    for number in survivors:
        print(number, *(tests_of(number) or ["has no test below tests/group"]))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
