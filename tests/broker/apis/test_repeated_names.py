"""A response repeats the result of each repeated name in a request, but large results appear once."""

from __future__ import annotations

from kproto.broker.apis.repeated_names import MAX_REPEATED, repeat_as_named, truncate_name


def test_each_name_is_answered_in_the_order_of_the_request() -> None:
    assert repeat_as_named({"a": "A", "b": "B"}, ["b", "a", "b", "absent"], len) == ["B", "A", "B"]


def test_large_answers_are_not_repeated() -> None:
    large = "x" * (MAX_REPEATED // 2)
    assert repeat_as_named({"a": large}, ["a"] * 3, len) == [large] * 3
    assert repeat_as_named({"a": large}, ["a"] * 4, len) == [large]


def test_a_name_is_cut_if_the_messages_about_it_would_be_large() -> None:
    assert truncate_name("t" * 249, 4_000) == "t" * 249
    assert truncate_name("t" * 249, 10_000) == "t" * 104
    assert truncate_name("é" * 249, 10_000) == "é" * 52
    assert truncate_name("t", 0) == "t"
