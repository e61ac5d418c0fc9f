"""The result of a leader's assignor is explained: each partition has an outcome with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import Subscription, TopicPartition, sticky_user_data
from kproto.inspect.assignments import (
    MAX_PARTITIONS,
    AssignorInput,
    answer_assign,
    explain,
    format_ranges,
    parse_input,
    parse_member,
    parse_topic,
    summary_lines,
    to_json,
)
from kproto.inspect.json_lines import BadQuestion
from tests.group.assignors.stage import assignor_inputs


def member(member_id: str, owned: Mapping[str, list[int]] | None = None, **fields: Any) -> dict[str, Any]:
    generation = None if owned is None else 3
    return {"id": member_id, "subscribed": ["t"], "owned": owned, "generation": generation, **fields}


def group(assignor: str, *members: dict[str, Any], partitions: int = 4, racks: Any = None) -> AssignorInput:
    topics = {"t": {"partitions": partitions, "racks": racks}}
    return parse_input({"assignor": assignor, "topics": topics, "members": list(members)})


def outcomes(given_group: AssignorInput) -> list[tuple[str | None, str | None, str]]:
    return [(outcome.previous, outcome.owner, outcome.outcome) for outcome in explain(given_group)]


def reasons(given_group: AssignorInput) -> set[str]:
    return {outcome.why for outcome in explain(given_group) if outcome.outcome != "kept"}


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_a_sticky_assignor_keeps_what_is_balanced_and_names_the_loads_of_what_moves(assignor: str) -> None:
    moving = group(assignor, member("m1", {"t": [0, 1, 2, 3]}), member("m2"))
    change = "moved" if assignor == "sticky" else "withheld"
    assert outcomes(moving) == [("m1", "m1", "kept")] * 2 + [("m1", "m2", change)] * 2
    assert reasons(moving) == {"balance: m1 owned 4 partitions, m2 owned 0"}


def test_a_withheld_partition_belongs_to_no_member_until_the_next_rebalance() -> None:
    moving = group("cooperative-sticky", member("m1", {"t": [0, 1, 2, 3]}), member("m2"))
    assert answer_assign(lambda: 7)(to_question(moving)) == {
        "assignment": {"m1": {"t": [0, 1]}, "m2": {}},
        "micros": 0,
    }
    assert any("until its previous owner has revoked it" in line for line in summary_lines(moving))


def to_question(given_group: AssignorInput) -> dict[str, Any]:
    """Return the JSON form of a group, as `parse_input` reads it."""
    return {
        "assignor": given_group.assignor.name,
        "topics": {topic: {"partitions": count} for topic, count in given_group.partitions.items()},
        "members": [
            {
                "id": member_id,
                "subscribed": list(subscription.topics),
                "owned": {"t": [partition for _, partition in subscription.owned]},
                "generation": subscription.generation,
            }
            for member_id, subscription in given_group.members.items()
        ],
    }


def test_range_gives_the_order_of_the_members_as_the_reason() -> None:
    moving = group("range", member("m1", {"t": [2, 3]}), member("m2", {"t": [0, 1]}))
    assert outcomes(moving) == [("m2", "m1", "moved")] * 2 + [("m1", "m2", "moved")] * 2
    assert reasons(moving) == {"range ignores previous owners; the order of the members decides"}


def test_a_partition_goes_to_the_member_in_the_rack_of_its_replica() -> None:
    near = group("range", member("m1", rack="a"), member("m2", rack="b"), partitions=2, racks=[["b"], ["a"]])
    assert outcomes(near) == [(None, "m2", "assigned"), (None, "m1", "assigned")]
    assert reasons(near) == {"rack: a replica is in rack b of m2", "rack: a replica is in rack a of m1"}


def test_a_rack_is_no_reason_if_the_owner_has_none_of_the_replicas() -> None:
    far = group("range", member("m1", rack="c"), member("m2"), partitions=2, racks=[["b"], ["a"]])
    assert reasons(far) == {"no member owned it"}
    without = group("range", member("m1", rack="a"), member("m2", rack="b"), partitions=2)
    assert reasons(without) == {"no member owned it"}
    members = [member("m1", {"t": [1]}, rack="a"), member("m2", {"t": [0]}, rack="a")]
    same = group("range", *members, partitions=2, racks=[["a"], ["a"]])
    assert reasons(same) == {"range ignores previous owners; the order of the members decides"}


def test_a_partition_moves_from_a_member_that_no_longer_subscribes() -> None:
    unsubscribed = group("sticky", member("m1", {"t": [0]}, subscribed=["u"]), member("m2"), partitions=1)
    assert outcomes(unsubscribed) == [("m1", "m2", "moved")]
    assert reasons(unsubscribed) == {"m1 does not subscribe to t any more"}


def test_the_newest_generation_decides_who_owned_a_partition() -> None:
    old, new = member("m1", {"t": [0]}, generation=2), member("m2", {"t": [0]}, generation=3)
    assert outcomes(group("sticky", old, new, partitions=1)) == [("m2", "m2", "kept")]


def test_two_members_may_report_a_partition_in_the_same_generation() -> None:
    double_owner_error = "m1 and m2 both report it as owned in the same generation"
    for generation, reason in (
        (3, double_owner_error),
        (2, "range ignores previous owners; the order of the members decides"),
    ):
        claims = [member("m1", {"t": [0]}, generation=generation), member("m2", {"t": [0]}, generation=3)]
        moving = group("range", member("m0", {"t": [0]}, generation=1), *claims, partitions=1)
        assert outcomes(moving) == [("m2", "m0", "moved")]
        assert reasons(moving) == {reason}


def test_a_topic_without_subscribers_stays_unassigned() -> None:
    assert outcomes(group("range", member("m1", subscribed=[]), partitions=1)) == [(None, None, "unassigned")]


def test_given_user_data_replaces_the_user_data_of_the_owned_partitions() -> None:
    claim = sticky_user_data([TopicPartition("t", 1)], 5)
    given_claim = group("sticky", member("m1", {"t": [0]}, user_data_hex=claim.hex()), partitions=2)
    assert given_claim.members["m1"].user_data == claim
    assert outcomes(given_claim)[1] == ("m1", "m1", "kept")
    assert outcomes(given_claim)[0] == (None, "m1", "assigned")


def test_a_new_member_has_no_previous_assignment_in_its_user_data() -> None:
    assert group("sticky", member("m1")).members["m1"].user_data is None
    assert group("sticky", member("m1", {})).members["m1"].user_data == sticky_user_data([], 3)


@given(assignor_inputs())
def test_the_outcomes_agree_with_the_assignment(
    drawn: tuple[dict[str, int], dict[str, Subscription], dict[str, list[frozenset[str]]]],
) -> None:
    topics, members, racks = drawn
    for assignor in ASSIGNORS.values():
        drawn_group = AssignorInput(assignor, topics, members, racks)
        assigned = {(p, m) for m, partitions in drawn_group.assign().items() for p in partitions}
        explained = explain(drawn_group)
        assert len(explained) == sum(topics.values())
        settled = {(o.partition, o.owner) for o in explained if o.outcome in ("kept", "moved", "assigned")}
        assert settled == {(p, m) for p, m in assigned if p.topic in topics}
        assert all(assignor.cooperative for outcome in explained if outcome.outcome == "withheld")
        subscribed = {topic for subscription in members.values() for topic in subscription.topics}
        for outcome in explained:
            assert (outcome.outcome == "unassigned") == (outcome.partition.topic not in subscribed)
        assert to_json(drawn_group)["assignor"] == assignor.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"assignor": "rang"},
            f'assignor is "rang", not one of {", ".join(ASSIGNORS)}',
        ),
        (
            {"topics": {"t": {"partitions": MAX_PARTITIONS + 1}}},
            "topics.t.partitions is 1000001; it must be",
        ),
        (
            {"topics": {"t": {"partitions": MAX_PARTITIONS}, "u": {"partitions": 1}}},
            "topics.u.partitions is 1; it must be",
        ),
        ({"topics": {"t": {"partitions": -1}}}, "topics.t.partitions is -1; it must be at least 0"),
        ({"topics": {"t": 3}}, "topics.t is 3, not an object"),
        (
            {"topics": {"t": {"partitions": 2, "racks": [["a"]]}}},
            "topics.t.racks has 1 lists, but the topic has 2",
        ),
        (
            {"topics": {"t": {"partitions": 1, "racks": [[1]]}}},
            "topics.t.racks[0] is [1], not a list of strings",
        ),
        ({"members": [{"id": "m"}]}, "the key 'members[0].subscribed' is missing"),
        ({"members": [member("m"), member("m")]}, 'members[1].id is "m", which is the id of another member'),
        ({"members": [member("m", {"t": [-1]})]}, "members[0].owned.t is [-1], not a list of partitions"),
        (
            {"members": [member("m", {}, generation=2**31)]},
            "members[0].generation is 2147483648; it must be an int32",
        ),
        (
            {"members": [member("m", {}, user_data_hex="0g")]},
            "members[0].user_data_hex: 'g' at 1 is no digit",
        ),
        ({"members": [member("m", ownd=1)]}, "members[0].ownd is not a known key. Allowed: generation, id"),
    ],
)
def test_an_invalid_group_is_rejected_with_the_wrong_key(change: dict[str, Any], message: str) -> None:
    question = {"assignor": "range", "topics": {"t": {"partitions": 2}}, "members": [member("m")], **change}
    with pytest.raises(BadQuestion) as failure:
        parse_input(question)
    assert str(failure.value).startswith(message)


def test_a_member_argument_lists_ranges_of_several_topics() -> None:
    assert parse_member("m1@a=t:0-2,5;u:1", ["t", "u"]) == {
        "id": "m1",
        "rack": "a",
        "subscribed": ["t", "u"],
        "owned": {"t": [0, 1, 2, 5], "u": [1]},
        "generation": 1,
    }
    assert format_ranges([0, 1, 2, 5]) == "0-2,5"


@pytest.mark.parametrize(
    ("text", "rack", "owned", "generation"),
    [
        ("m1", None, {}, None),
        ("m1@a", "a", {}, None),
        ("m1@=a:b:0", None, {"a:b": [0]}, 1),
        (f"m1=t:{MAX_PARTITIONS - 1}", None, {"t": [MAX_PARTITIONS - 1]}, 1),
        ("m1=t:3-3", None, {"t": [3]}, 1),
    ],
)
def test_rack_and_partitions_of_a_member_argument_are_optional(
    text: str, rack: str | None, owned: dict[str, list[int]], generation: int | None
) -> None:
    member_json = parse_member(text, ["t"])
    assert member_json == {
        "id": "m1",
        "rack": rack,
        "subscribed": ["t"],
        "owned": owned,
        "generation": generation,
    }


@pytest.mark.parametrize(
    "text", ["", "@a", "m1=", "m1=0", "m1=t:", "m1=t:x", "m1=t:2-1", "m1=t:-1", f"m1=t:{MAX_PARTITIONS}"]
)
def test_a_wrong_member_argument_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="such as m1=flights:0-2,5"):
        parse_member(text, ["t"])


def test_a_topic_argument_has_partitions_and_racks() -> None:
    assert parse_topic("a:b:3") == ("a:b", {"partitions": 3, "racks": None})
    assert parse_topic("t:3@x,y") == ("t", {"partitions": 3, "racks": [["x"], ["y"], ["x"]]})
    assert parse_topic("t:0@x") == ("t", {"partitions": 0, "racks": []})
    name, topic = parse_topic("t:9999999@x")
    assert (name, topic["partitions"], len(topic["racks"])) == ("t", 9_999_999, MAX_PARTITIONS)


@pytest.mark.parametrize("text", ["t", ":3", "t:", "t:x", "t:-1", "t:10000000", "t:3@"])
def test_a_wrong_topic_argument_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="such as flights:6"):
        parse_topic(text)


def test_the_summary_lists_members_and_partitions_with_the_same_outcome() -> None:
    moving = group("cooperative-sticky", member("m1", {"t": [0, 1, 2, 3]}), member("m2"), partitions=5)
    assert summary_lines(moving) == [
        "cooperative-sticky: 5 partitions, 2 members",
        "",
        "MEMBER  BEFORE  AFTER  PARTITIONS",
        "m1      4       3      t:0-2",
        "m2      0       1      t:4",
        "",
        "PARTITIONS  FROM  TO  OUTCOME   WHY",
        *summary_lines(moving)[7:10],
        "",
        "A withheld partition has no owner until its previous owner has revoked it. Then the member",
        "rejoins, and the next rebalance assigns the partition (KIP-429).",
    ]
    rows = [line.split(maxsplit=4)[:4] for line in summary_lines(moving)[7:10]]
    assert rows == [
        ["t:0-2", "m1", "m1", "kept"],
        ["t:3", "m1", "m2", "withheld"],
        ["t:4", "-", "m2", "assigned"],
    ]
    alone = group("range", member("m1"), partitions=1)
    assert summary_lines(alone)[0] == "range: 1 partition, 1 member"
    nobody = group("range", member("m1"), member("m2"), partitions=1)
    assert summary_lines(nobody)[3:5] == ["m1      0       1      t:0", "m2      0       0      -"]
