"""Authorization: a real Kafka and the embedded broker with the same ACLs answer the users' requests alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.acl_requests import NO_ID, TOPICS, Side, both_sides, requests

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.java,
]


NAMES = list(requests(dict.fromkeys(TOPICS, NO_ID)))


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with both_sides(tmp_path_factory.mktemp("acls")) as pair:
        yield pair


@pytest.mark.parametrize("name", NAMES)
def test_both_brokers_answer_bob_alike(sides: tuple[Side, Side], name: str) -> None:
    theirs, ours = (side.ask("bob", requests(side.ids)[name]) for side in sides)
    assert ours == theirs
