"""Plans about what groups committed, by somebody who is no member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.offset_commit import OffsetCommitResponse
from kproto.messages.offset_fetch import OffsetFetchResponse

from ..error_actions import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    ErrorAction,
    action_for,
)
from ..metadata.cluster import ClusterView
from ..requests import (
    CommittedOffset,
    ids_of,
    most_for_ids,
    offset_commit_codes,
    offset_commit_request,
    offset_fetch_request,
    offset_fetch_result,
)
from .cluster import find_coordinator, read_metadata
from .plan import Ask, Plan, Rest, expect, left_out, lost, try_again


def commit_offsets(
    view: ClusterView,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]],
    clock: Callable[[], int],
) -> Plan[None]:
    """Commits without being a member; allowed while the group has no members (or doesn't exist)."""
    if not offsets:
        return
    while True:
        node = yield from find_coordinator(view, group, clock)
        most, ids = most_for_ids(view, (partition.topic for partition in offsets), 9), ids_of(view, offsets)
        [call] = yield [Ask(offset_commit_request(ids, group, offsets), node=node, max_version=most)]
        if lost(call):
            yield Rest(str(call.error))
            continue
        codes = offset_commit_codes(ids, expect(OffsetCommitResponse, call), call.version, offsets)
        bad = {partition: code for partition, code in codes.items() if code}
        if bad:
            partition, code = next(iter(bad.items()))
            has = ": the group has members: stop them first" if code == ErrorCode.UNKNOWN_MEMBER_ID else ""
            yield try_again(OFFSET_COMMIT, code, "OffsetCommit", f"group {group!r}, {partition}{has}")
            yield from _look_again(view, bad, clock)
        elif unsaid := offsets.keys() - codes.keys():
            yield left_out("OffsetCommit", min(unsaid))
        else:
            return


def _look_again(view: ClusterView, bad: Mapping[TopicPartition, int], clock: Callable[[], int]) -> Plan[None]:
    """A topic that was deleted and made anew has another id."""
    topics = {partition.topic for partition, code in bad.items() if code == ErrorCode.UNKNOWN_TOPIC_ID}
    if topics:
        yield from read_metadata(view, topics, clock)


def committed_offsets(
    view: ClusterView,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    clock: Callable[[], int],
    *,
    coordinator: int | None = None,
    found: Callable[[int], object] | None = None,
    by_name: bool = False,
) -> Plan[dict[TopicPartition, CommittedOffset | None]]:
    """What the group committed; None for a partition without a commit. All partitions when none are named.

    `coordinator` is asked first, where one is known, and `found` is told which one was looked up; `by_name`
    never uses topic ids (up to v9).
    """
    wanted = None if partitions is None else set(partitions)
    while True:
        node, coordinator = coordinator, None
        if node is None:
            node = yield from find_coordinator(view, group, clock)
            if found is not None:
                found(node)
        if wanted is None:
            yield from read_metadata(view, None, clock)
        named = wanted is None or by_name
        most = 9 if named else most_for_ids(view, (partition.topic for partition in wanted or ()), 9)
        [call] = yield [Ask(offset_fetch_request(group, wanted, view), node=node, max_version=most)]
        if lost(call):
            yield Rest(str(call.error))
            continue
        result = offset_fetch_result(view, expect(OffsetFetchResponse, call), call.version, group)
        if result is None:
            yield left_out("OffsetFetch", f"group {group!r}")
            continue
        code, said = result
        told = {one: value for one, value in said.items() if wanted is None or one in wanted}
        bad = [(partition, value) for partition, value in told.items() if isinstance(value, int)]
        if code:
            yield try_again(OFFSET_FETCH, code, "OffsetFetch", f"group {group!r}")
            coordinator = None if action_for(OFFSET_FETCH, code) is ErrorAction.FIND_COORDINATOR else node
        elif bad:
            yield try_again(OFFSET_FETCH, bad[0][1], "OffsetFetch", f"group {group!r}, {bad[0][0]}")
            yield from _look_again(view, dict(bad), clock)
            coordinator = node
        elif unsaid := (wanted or set()) - told.keys():
            yield left_out("OffsetFetch", min(unsaid))
        else:
            return {partition: value for partition, value in told.items() if not isinstance(value, int)}
