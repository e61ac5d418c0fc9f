"""A new assignor needs only an entry in `ASSIGNORS` to be known wherever assignors are listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer.option_checks import assignors as check_assignors
from consumer.security import client_properties
from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.inspect.assignments import explain, parse_input
from kproto.models.index import model_names
from kproto.scenarios.story_world import assignors_of
from tests.group.assignors.stage import assign, wants


@pytest.fixture(autouse=True)
def whole_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register an assignor "ranges", which assigns as the assignor "range" does."""
    ranges = Assignor(
        "ranges", ASSIGNORS["range"].assign, balances_each_topic=True, java_class="RangesAssignor"
    )
    monkeypatch.setitem(ASSIGNORS, "ranges", ranges)


def test_the_consumer_and_properties_files_accept_a_new_assignor(tmp_path: Path) -> None:
    assert check_assignors("partition_assignment_strategy", "ranges") == ("ranges",)
    file = tmp_path / "client.properties"
    for text in ("ranges", "org.apache.kafka.clients.consumer.RangesAssignor"):
        file.write_text(f"partition.assignment.strategy={text},range\n")
        assert client_properties(file) == {"partition_assignment_strategy": ["ranges", "range"]}
    file.write_text("partition.assignment.strategy=other\n")
    with pytest.raises(ConfigError, match=r"consumer\.CooperativeStickyAssignor, .*consumer\.RangesAssignor"):
        client_properties(file)


def test_the_help_of_assign_lists_a_new_assignor(capsys: pytest.CaptureFixture[str]) -> None:
    from kproto import cli

    with pytest.raises(SystemExit):
        cli.main(["assign", "--help"])
    assert ", ".join(ASSIGNORS) in " ".join(capsys.readouterr().out.split())


def test_the_reasons_of_moves_follow_from_the_fields_of_a_new_assignor() -> None:
    owner = {"id": "m2", "subscribed": ["t"], "owned": {"t": [0]}}
    members = [{"id": "m1", "subscribed": ["t"]}, owner]
    outcomes = explain(
        parse_input({"assignor": "ranges", "topics": {"t": {"partitions": 2}}, "members": members})
    )
    assert outcomes[0].why == "ranges ignores previous owners; the order of the members decides"


def test_the_properties_of_assignors_are_checked_for_a_new_one() -> None:
    plan = assign("ranges", {"t": 2, "u": 2}, m1=wants("t u"), m2=wants("t u"))
    assert {member_id: len(partitions) for member_id, partitions in plan.items()} == {"m1": 2, "m2": 2}


def test_only_kprotos_own_client_has_a_new_assignor() -> None:
    assert "ranges" in assignors_of("kproto")
    assert [name for name in model_names() if "ranges" in assignors_of(name)] == []
