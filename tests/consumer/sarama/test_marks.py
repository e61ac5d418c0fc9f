"""Marked offsets are committed once, and only a reset moves a mark back. The tests need no group."""

from __future__ import annotations

from consumer.engine.requests import CommittedOffset
from consumer.sarama.marks import Marks
from kproto.group.subscription import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_mark_moves_forward_and_back_only_by_reset() -> None:
    marks = Marks()
    for offset, reset, then in ((5, False, 5), (4, False, 5), (5, False, 5), (7, False, 7), (2, True, 2)):
        marks.mark(A, 0, offset, "", reset=reset)
        assert marks.offset(A) == then


def test_the_initial_offset_of_a_claim_is_not_committed() -> None:
    marks = Marks()
    marks.mark(A, 5, 5, "", reset=False)
    assert marks.uncommitted(None) == {}


def test_offsets_marked_during_a_commit_remain_uncommitted() -> None:
    marks = Marks()
    marks.mark(A, 0, 5, "", reset=False)
    sent = marks.uncommitted(None)
    marks.mark(A, 0, 8, "", reset=False)
    marks.on_committed(sent)
    assert (marks.committed_offset(A), marks.uncommitted(None)) == (5, {A: (8, "")})


def test_another_metadata_text_is_another_mark() -> None:
    marks = Marks()
    marks.mark(A, 0, 5, "", reset=False)
    sent = marks.uncommitted(None)
    marks.mark(A, 0, 5, "half of 5", reset=True)
    marks.on_committed(sent)
    assert marks.uncommitted(None) == {A: (5, "half of 5")}


def test_a_mark_in_setup_counts_only_if_it_is_above_the_commit() -> None:
    marks = Marks()
    for place in (A, B):
        marks.mark(place, None, 3, "", reset=False)
        marks.mark(place, None, 4, "", reset=False)
    assert marks.unverified() == {A, B}
    marks.verify({A: CommittedOffset(offset=4, metadata="", leader_epoch=None), B: None})
    assert (marks.unverified(), marks.uncommitted(None)) == (set(), {B: (4, "")})


def test_a_reset_in_setup_needs_no_verification() -> None:
    marks = Marks()
    marks.mark(A, None, 3, "", reset=True)
    marks.mark(A, None, 4, "", reset=False)
    assert marks.unverified() == set()
    marks.verify({A: CommittedOffset(offset=9, metadata="", leader_epoch=None)})
    assert marks.offset(A) == 4


def test_only_the_requested_partitions_are_committed() -> None:
    marks = Marks()
    for place in (A, B):
        marks.mark(place, 0, 1, "", reset=False)
    assert marks.uncommitted({B}) == {B: (1, "")}
    marks.remove([B])
    assert marks.uncommitted(None) == {A: (1, "")}


def test_a_commit_of_removed_marks_is_ignored() -> None:
    """A partition may be revoked during a commit of its mark. The response must not restore the mark."""
    marks = Marks()
    for place in (A, B):
        marks.mark(place, 0, 5, "", reset=False)
    sent = marks.uncommitted(None)
    marks.remove([A, TopicPartition("t", 2)])
    marks.on_committed(sent)
    assert (marks.offset(A), marks.committed_offset(A)) == (None, None)
    assert (marks.committed_offset(B), marks.uncommitted(None)) == (5, {})


def test_a_later_mark_keeps_the_committed_offset_until_the_next_commit() -> None:
    marks = Marks()
    marks.mark(A, 0, 5, "five", reset=False)
    assert (marks.committed_offset(A), marks.uncommitted([A])) == (None, {A: (5, "five")})
    marks.on_committed(marks.uncommitted(None))
    marks.mark(A, 0, 6, "six", reset=False)
    assert (marks.offset(A), marks.committed_offset(A)) == (6, 5)
    assert marks.uncommitted(None) == {A: (6, "six")}


def test_a_mark_in_setup_is_verified_once() -> None:
    """A mark that `setup` makes is compared with the committed offset once, and dropped if it is not higher.

    A mark that is made during a claim is never compared with the committed offset.
    """
    marks = Marks()
    marks.mark(A, None, 3, "", reset=False)
    marks.mark(B, 0, 3, "", reset=False)
    committed = CommittedOffset(offset=9, metadata="", leader_epoch=None)
    marks.verify({A: None, B: committed, TopicPartition("t", 2): committed})
    marks.verify({A: committed})
    assert (marks.offset(A), marks.offset(B)) == (3, 3)
    marks.mark(A, 0, 4, "", reset=False)
    assert marks.unverified() == set()
