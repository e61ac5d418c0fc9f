"""The error codes that a cell (event and state) of the transaction coordinator's table sends.

`tests.machines.check_cells` compares them with the codes that the cell declares.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kproto.transactions.partitions import PartitionsRequest
from tests.machines import sent_codes


def codes_of(event: Any, actions: list[Any]) -> Iterable[int]:
    """Return the error codes of the responses, or of the partitions of a `PartitionsRequest`."""
    if isinstance(event, PartitionsRequest):
        return {*event.codes.values()}
    return {*sent_codes(event, actions)}
