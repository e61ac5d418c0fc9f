"""What is marked and what of it is committed, without a group."""

from __future__ import annotations

from consumer.engine.requests import CommittedOffset
from consumer.sarama.marks import Marks
from kproto.group.subscription import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_mark_goes_forward_and_back_only_by_reset() -> None:
    marks = Marks()
    for offset, back, then in ((5, False, 5), (4, False, 5), (5, False, 5), (7, False, 7), (2, True, 2)):
        marks.mark(A, 0, offset, "", back=back)
        assert marks.offset(A) == then


def test_where_the_claim_began_is_no_mark() -> None:
    marks = Marks()
    marks.mark(A, 5, 5, "", back=False)
    assert marks.dirty(None) == {}


def test_what_was_marked_during_a_commit_is_still_to_be_committed() -> None:
    marks = Marks()
    marks.mark(A, 0, 5, "", back=False)
    sent = marks.dirty(None)
    marks.mark(A, 0, 8, "", back=False)
    marks.committed(sent)
    assert (marks.kept(A), marks.dirty(None)) == (5, {A: (8, "")})


def test_another_text_is_another_mark() -> None:
    marks = Marks()
    marks.mark(A, 0, 5, "", back=False)
    sent = marks.dirty(None)
    marks.mark(A, 0, 5, "half of 5", back=True)
    marks.committed(sent)
    assert marks.dirty(None) == {A: (5, "half of 5")}


def test_a_mark_of_setup_counts_where_it_is_ahead_of_the_commit() -> None:
    marks = Marks()
    for place in (A, B):
        marks.mark(place, None, 3, "", back=False)
        marks.mark(place, None, 4, "", back=False)
    assert marks.in_doubt() == {A, B}
    marks.settle({A: CommittedOffset(offset=4, metadata="", leader_epoch=None), B: None})
    assert (marks.in_doubt(), marks.dirty(None)) == (set(), {B: (4, "")})


def test_a_reset_of_setup_is_not_in_doubt() -> None:
    marks = Marks()
    marks.mark(A, None, 3, "", back=True)
    marks.mark(A, None, 4, "", back=False)
    assert marks.in_doubt() == set()
    marks.settle({A: CommittedOffset(offset=9, metadata="", leader_epoch=None)})
    assert marks.offset(A) == 4


def test_only_the_partitions_that_are_asked_for_are_committed() -> None:
    marks = Marks()
    for place in (A, B):
        marks.mark(place, 0, 1, "", back=False)
    assert marks.dirty({B}) == {B: (1, "")}
    marks.forget([B])
    assert marks.dirty(None) == {A: (1, "")}
