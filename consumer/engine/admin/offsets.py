"""Plans that read and commit the offsets of a group, for a client that is not a member."""

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
    may_repeat,
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
        max_version, ids = (
            version_limit(view, (partition.topic for partition in offsets), LAST_VERSION_WITH_NAMES),
            topic_ids_of(view, offsets),
        )
        [call] = yield [Ask(offset_commit_request(ids, group, offsets), node=node, max_version=max_version)]
        if may_repeat(call):
            yield Rest(str(call.error))
            continue
        codes = offset_commit_codes(ids, expect_response(OffsetCommitResponse, call), call.version, offsets)
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
) -> Plan[dict[TopicPartition, CommittedOffset | None]]:
    """Return the committed offset of each partition, or None if the partition has none.

    If `partitions` is None, the offsets of all partitions are requested.

    `coordinator` is the node to try first, if it is known. After a lookup the plan calls `on_coordinator`
    with the node.

    With `by_name` the request identifies topics by name, so its version is 9 or lower.
    """
    wanted = None if partitions is None else set(partitions)
    while True:
        node, coordinator = coordinator, None
        if node is None:
            node = yield from find_coordinator(view, group, clock)
            if on_coordinator is not None:
                on_coordinator(node)
        if wanted is None:
            yield from read_metadata(view, None, clock)
        uses_names = wanted is None or by_name
        max_version = (
            LAST_VERSION_WITH_NAMES
            if uses_names
            else version_limit(view, (partition.topic for partition in wanted or ()), LAST_VERSION_WITH_NAMES)
        )
        [call] = yield [Ask(offset_fetch_request(group, wanted, view), node=node, max_version=max_version)]
        if may_repeat(call):
            yield Rest(str(call.error))
            continue
        result = offset_fetch_result(view, expect_response(OffsetFetchResponse, call), call.version, group)
        if result is None:
            yield pause_for_missing("OffsetFetch", f"group {group!r}")
            continue
        code, results = result
        offsets = {
            partition_key: value
            for partition_key, value in results.items()
            if wanted is None or partition_key in wanted
        }
        errors = [(partition, value) for partition, value in offsets.items() if isinstance(value, int)]
        if code:
            yield pause_after_error(OFFSET_FETCH, code, "OffsetFetch", f"group {group!r}")
            coordinator = None if action_for(OFFSET_FETCH, code) is ErrorAction.FIND_COORDINATOR else node
        elif errors:
            yield pause_after_error(
                OFFSET_FETCH, errors[0][1], "OffsetFetch", f"group {group!r}, {errors[0][0]}"
            )
            yield from _refresh_recreated(view, dict(errors), clock)
            coordinator = node
        elif missing := (wanted or set()) - offsets.keys():
            yield pause_for_missing("OffsetFetch", min(missing))
        else:
            return {partition: value for partition, value in offsets.items() if not isinstance(value, int)}
