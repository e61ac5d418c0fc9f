"""Check each step of the transaction coordinator against its cell (event and state) of the state table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.transactions import TABLE
from tests.machines import check_cells
from tests.transactions.cells import codes_of
from tests.transactions.stage import Stage


@pytest.fixture(autouse=True, scope="module")
def each_step_keeps_to_its_cell() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        check_cells(patch, TABLE, codes_of)
        yield


@pytest.fixture
def stage() -> Stage:
    return Stage()
