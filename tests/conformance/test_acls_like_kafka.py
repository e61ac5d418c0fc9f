"""Authorization: a real Kafka and the embedded broker with the same ACLs answer the users' requests alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
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


def test_both_brokers_describe_the_authorizers_configs_alike(sides: tuple[Side, Side]) -> None:
    names = ["allow.everyone.if.no.acl.found", "authorizer.class.name", "super.users"]
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=names)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    theirs, ours = (side.users["alice"].request(request, 1).results[0].configs for side in sides)
    by_name = [sorted(configs, key=lambda config: config.name) for configs in (theirs, ours)]
    assert by_name[0] == by_name[1]
    assert [config.name for config in by_name[0]] == ["authorizer.class.name", "super.users"]
