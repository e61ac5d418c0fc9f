"""ApiVersions lists the versions of all APIs. A response with UNSUPPORTED_VERSION lists only ApiVersions."""

from __future__ import annotations

import pytest

from kproto.broker.apis.table import APIS
from kproto.error_codes import ErrorCode
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_response
from tests.broker.apis.stage import api_versions_request, request_bytes
from tests.broker.stage import Client, Stage

SERVED = sorted(APIS)


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, group_initial_rebalance_delay_ms=0)


@pytest.mark.parametrize("version", range(6))
def test_exactly_the_served_apis_are_advertised(client: Client, version: int) -> None:
    answer: ApiVersionsResponse = client.ask(
        api_versions_request() if version >= 3 else ApiVersionsRequest(), version
    )
    assert [api.api_key for api in answer.api_keys] == SERVED


def test_the_advertised_versions_are_those_of_kafka(client: Client) -> None:
    ranges = {
        api.api_key: (api.min_version, api.max_version) for api in client.ask(api_versions_request()).api_keys
    }
    # The version ranges that Kafka 4.4.0 lists. kproto's messages support other versions of two APIs: v3 to
    # v13 of Produce (key 0), and v0 to v6 of InitProducerId (key 22).
    kafka = {
        0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9),
        12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 5), 19: (2, 7), 20: (1, 6),
        21: (0, 2), 22: (0, 5), 23: (2, 4), 32: (1, 4), 37: (0, 3), 42: (0, 3), 44: (0, 1), 47: (0, 0),
        17: (0, 1), 33: (0, 2), 29: (1, 3), 30: (1, 3), 31: (1, 3), 36: (0, 2), 50: (0, 0), 51: (0, 0),
        24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 6), 60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2),
        75: (0, 0), 35: (1, 5), 43: (0, 2), 46: (0, 0), 45: (0, 1), 48: (0, 1), 49: (0, 1), 55: (0, 2),
        57: (0, 2), 71: (0, 0), 72: (0, 0), 74: (0, 1), 27: (1, 2), 34: (1, 2), 64: (0, 0), 80: (0, 1),
        81: (0, 0), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3),
    }  # fmt: skip
    assert ranges == kafka


@pytest.mark.parametrize("version", [6, 99])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    stage: Stage, client: Client, version: int
) -> None:
    client.send_bytes(request_bytes(18, version, 41, b"whatever"))
    correlation, answer = decode_response(client.answers.pop(), ApiVersionsResponse, 0)
    assert (correlation, answer.error_code) == (41, ErrorCode.UNSUPPORTED_VERSION)
    assert [(api.api_key, api.max_version) for api in answer.api_keys] == [(18, 5)]
    assert client.ask(api_versions_request()).error_code == 0


@pytest.mark.parametrize(
    ("cluster", "node", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("kproto-embedded-broker", 1, ErrorCode.NONE),
        ("kproto-embedded-broker", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("kproto-embedded-broker", -5, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("kproto-embedded-broker", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_expects_another_node_bootstraps_again(
    client: Client, cluster: str | None, node: int, code: ErrorCode
) -> None:
    """A request must contain both the cluster id and the node id that the client expects, or neither
    (KIP-1242).

    The expected error codes are those of Kafka 4.4.0.
    """
    request = api_versions_request()
    request.cluster_id, request.node_id = cluster, node
    answer = client.ask(request, 5)
    assert (answer.error_code, bool(answer.api_keys)) == (code, code == ErrorCode.NONE)
    assert client.ask(api_versions_request()).error_code == 0


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n"])
def test_an_invalid_software_name_is_refused(client: Client, name: str) -> None:
    assert client.ask(api_versions_request(client_software_name=name)).error_code == ErrorCode.INVALID_REQUEST
