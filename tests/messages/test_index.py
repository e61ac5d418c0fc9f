"""The index finds every message, and imports a message only when it is requested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kproto.messages import index
from kproto.messages.consumer_protocol import ConsumerProtocolSubscription
from kproto.messages.group_records import OffsetCommitKey, OffsetCommitValue
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse

FOLDER = Path(index.__file__).parent
NOT_MESSAGES = {"__init__", "index", "json_form"}


def test_an_api_key_finds_request_and_response() -> None:
    assert index.request_class(11) is JoinGroupRequest
    assert index.response_class(11) is JoinGroupResponse


def test_a_record_type_finds_key_and_value() -> None:
    assert index.record_classes(1) == (OffsetCommitKey, OffsetCommitValue)


def test_a_name_finds_any_message() -> None:
    assert index.message_class("ConsumerProtocolSubscription") is ConsumerProtocolSubscription


def test_every_name_is_the_class_of_that_name() -> None:
    names = index.names()
    assert [index.message_class(name).__name__ for name in names] == list(names)


def test_both_sides_of_an_api_have_its_key_and_the_same_versions() -> None:
    for api_key, name in index.API_NAMES.items():
        request, response = index.request_class(api_key), index.response_class(api_key)
        assert request.__api_key__ == response.__api_key__ == api_key, name
        assert request.__versions__ == response.__versions__, name


def test_the_index_has_every_module() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - NOT_MESSAGES
    assert files == {index.module_of(name) for name in index.names()}


@pytest.mark.parametrize("name", ["LeaderAndIsrRequest", "Heartbeat", "os", ""])
def test_an_unknown_name_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        index.message_class(name)


@pytest.mark.parametrize(
    ("kafka", "expected"),
    [
        ("GroupId", "group_id"),
        ("KRaftVersion", "k_raft_version"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("timeoutMs", "timeout_ms"),
        ("Enable2Pc", "enable2_pc"),
    ],
)
def test_names_are_kafkas_in_snake_case(kafka: str, expected: str) -> None:
    assert index.snake_case(kafka) == expected


def test_importing_the_index_imports_no_message() -> None:
    script = (
        "import sys, kproto.messages.index;"
        "print(*[name for name in sys.modules if name.startswith('kproto.messages.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=FOLDER.parents[1]
    )
    assert done.stdout.split() == ["kproto.messages.index"]
