"""What new metadata mean for the partitions: their topic was deleted and made anew, nobody leads them, or
there is no such partition.

Rules that hold here:

* Of each topic the newest id is known, and all that were one before: a broker that is behind may still say
  those.
* A topic with a new id is another topic of the same name: no position in the old one means anything any more.
  Who takes a partition in by hand means the topic that there is, whatever this client read of that name
  before. All topics that are told are looked at: who wants one by a pattern doesn't while it is gone.
* A partition that nobody leads is told as `refused` when that lasts, one that there is not as `missing`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kproto.error_codes import describe
from kproto.group.subscription import TopicPartition

from ...options import ConsumerOptions
from ..core import ClientCore
from .offset_lookup import OffsetLookup


class TopicChanges:
    """To be told after each answer of metadata."""

    def __init__(self, core: ClientCore[ConsumerOptions], finder: OffsetLookup) -> None:
        self._core = core
        self._finder = finder
        self._past_ids: set[object] = set()
        self._leaderless: set[TopicPartition] = set()

    def changed(self, asked: frozenset[str] | None) -> None:
        """`asked` for these (None: for all)."""
        self._look_for_new_ids(self._core.view.topics if asked is None else asked)
        self._look_for_leaders(asked)

    def _look_for_new_ids(self, topics: Iterable[str]) -> None:
        view, ids, told = self._core.view, self._core.topic_ids, set[str]()
        for name in topics:
            known, old = view.topic_id(name), ids.get(name)
            if known is None or (known != old and known in self._past_ids):
                continue
            told.add(name)
            if known != old:
                ids[name] = known
                if old is not None:
                    self._past_ids.add(old)
        for partition, state in list(self._core.partitions.states.items()):
            if partition.topic in told and state.topic_id != ids[partition.topic]:
                before, state.topic_id = state.topic_id, ids[partition.topic]
                if before is not None:
                    self._finder.created_anew(state)

    def _look_for_leaders(self, asked: frozenset[str] | None) -> None:
        core, view, before = self._core, self._core.view, self._leaderless
        leaderless = {one for one in before if asked is not None and one.topic not in asked}
        missing: list[TopicPartition] = []
        for partition in core.partitions:
            topic = view.topics.get(partition.topic)
            if (asked is not None and partition.topic not in asked) or topic is None or topic.error_code:
                continue
            if view.leader(partition) is None:
                leaderless.add(partition)
                known = topic.partitions.get(partition.partition)
                why = describe(known.error_code) if known and known.error_code else "no leader is known"
                core.report_failure("Metadata", why, partition, again=partition in before)
                if known is None and partition not in before:
                    missing.append(partition)
        self._leaderless = leaderless
        for name in sorted({partition.topic for partition in missing}):
            count = len(view.topics[name].partitions)
            has = f"topic {name!r} has {count} partition{'' if count == 1 else 's'} (yet)"
            core.report("missing", [one for one in missing if one.topic == name], reason=has)
