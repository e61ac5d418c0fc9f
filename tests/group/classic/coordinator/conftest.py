"""Check each step of the coordinator against the cell of its state table: the next states and error codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kproto.group.classic.coordinator import TABLE
from tests.machines import check_cells, sent_codes


@pytest.fixture(autouse=True, scope="module")
def each_step_keeps_to_its_cell() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        check_cells(patch, TABLE, _codes)
        yield


def _codes(event: Any, actions: list[Any]) -> Iterable[int]:
    """Return the error codes in the responses that a cell sent.

    A cell for DeleteGroups sends no response. Its event is the list of the results so far, and the cell
    appends the result of its group.
    """
    results = event if isinstance(event, list) else []
    return {*sent_codes(event, actions), *(result.error_code for result in results[-1:])}
