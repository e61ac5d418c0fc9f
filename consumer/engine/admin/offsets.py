"""Admin operations that read and commit the offsets of a group, for a client that is not a member."""

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
    LAST_VERSION_WITH_NAMES,
    CommittedOffset,
    offset_commit_codes,
    offset_commit_request,
    offset_fetch_request,
    offset_fetch_result,
    topic_ids_of,
    version_limit,
)
from .cluster import find_coordinator, read_metadata
from .plan import (
    Ask,
    Plan,
    Rest,
    expect_response,
    failed_without_response,
    pause_after_error,
    pause_for_missing,
)


def commit_offsets(
    view: ClusterView,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]],
    clock: Callable[[], int],
) -> Plan[None]:
    """Commit offsets for a group that has no members or does not exist yet."""
    if not offsets:
        return
    while True:
        node = yield from find_coordinator(view, group, clock)
        max_version = version_limit(view, (partition.topic for partition in offsets), LAST_VERSION_WITH_NAMES)
        topic_ids = topic_ids_of(view, offsets)
        request = offset_commit_request(topic_ids, group, offsets)
        [call] = yield [Ask(request, node=node, max_version=max_version)]
        if failed_without_response(call):
            yield Rest(str(call.error))
            continue
        response = expect_response(OffsetCommitResponse, call)
        codes = offset_commit_codes(topic_ids, response, call.version, offsets)
        errors = {partition: code for partition, code in codes.items() if code}
        if errors:
            partition, code = next(iter(errors.items()))
            hint = ": the group has members: stop them first" if code == ErrorCode.UNKNOWN_MEMBER_ID else ""
            yield pause_after_error(
                OFFSET_COMMIT, code, "OffsetCommit", f"group {group!r}, {partition}{hint}"
            )
            yield from _refresh_recreated(view, errors, clock)
        elif missing := offsets.keys() - codes.keys():
            yield pause_for_missing("OffsetCommit", min(missing))
        else:
            return


def _refresh_recreated(
    view: ClusterView, errors: Mapping[TopicPartition, int], clock: Callable[[], int]
) -> Plan[None]:
    """Refresh the metadata of re-created topics, whose cached ids the coordinator does not know."""
    topics = {partition.topic for partition, code in errors.items() if code == ErrorCode.UNKNOWN_TOPIC_ID}
    if topics:
        yield from read_metadata(view, topics, clock)


def committed_offsets(
    view: ClusterView,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    clock: Callable[[], int],
    *,
    coordinator: int | None = None,
    on_coordinator: Callable[[int], object] | None = None,
    by_name: bool = False,
    require_stable: bool = True,
) -> Plan[dict[TopicPartition, CommittedOffset | None]]:
    """Return the committed offset of each partition, or None if the partition has none.

    If `partitions` is None, the offsets of all partitions are requested.

    `coordinator` is the node to try first, if it is known. After a lookup the plan calls `on_coordinator`
    with the node.

    With `by_name` the request identifies topics by name, so its version is 9 or lower.

    With `require_stable` the plan waits for open transactions that commit offsets of the group (KIP-447).
    """
    requested_partitions = None if partitions is None else set(partitions)
    next_node = coordinator
    while True:
        # A retry looks up the coordinator first, except after an error for which the code below sets
        # `next_node`.
        node, next_node = next_node, None
        if node is None:
            node = yield from find_coordinator(view, group, clock)
            if on_coordinator is not None:
                on_coordinator(node)
        if requested_partitions is None:
            yield from read_metadata(view, None, clock)
        if requested_partitions is None or by_name:
            max_version: int | None = LAST_VERSION_WITH_NAMES
        else:
            topics = (partition.topic for partition in requested_partitions)
            max_version = version_limit(view, topics, LAST_VERSION_WITH_NAMES)
        request = offset_fetch_request(group, requested_partitions, view, require_stable=require_stable)
        [call] = yield [Ask(request, node=node, max_version=max_version)]
        if failed_without_response(call):
            yield Rest(str(call.error))
            continue
        result = offset_fetch_result(view, expect_response(OffsetFetchResponse, call), call.version, group)
        if result is None:
            yield pause_for_missing("OffsetFetch", f"group {group!r}")
            continue
        group_code, values = result
        # A value is the partition's committed offset, None if no offset is committed, or an error code.
        offsets = {
            partition: value
            for partition, value in values.items()
            if requested_partitions is None or partition in requested_partitions
        }
        errors = {partition: value for partition, value in offsets.items() if isinstance(value, int)}
        if group_code:
            yield pause_after_error(OFFSET_FETCH, group_code, "OffsetFetch", f"group {group!r}")
            has_moved = action_for(OFFSET_FETCH, group_code) is ErrorAction.FIND_COORDINATOR
            next_node = None if has_moved else node
        elif errors:
            partition, code = next(iter(errors.items()))
            yield pause_after_error(OFFSET_FETCH, code, "OffsetFetch", f"group {group!r}, {partition}")
            yield from _refresh_recreated(view, errors, clock)
            next_node = node
        elif missing := (requested_partitions or set()) - offsets.keys():
            yield pause_for_missing("OffsetFetch", min(missing))
        else:
            return {partition: value for partition, value in offsets.items() if not isinstance(value, int)}
