"""Which topics the application wants, by their names or by a pattern, and what the member hears of them.

Rules that hold here:

* A pattern means whole names, and none of Kafka's own. It is matched against each answer that tells of
  topics, but not before all were told once.
* The member hears how many partitions the topics have, their ids, and (for who has a rack) where these are.
* Metadata are asked for what the application wants, and for what the others in the group do.
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.group import protocol
from kproto.patterns import compiled

from ...options import ConsumerOptions
from ..core import ClientCore
from ..metadata.updater import MetadataUpdater


class Interests:
    """What was subscribed; `feed` tells the member."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        feed: Callable[[protocol.MemberEvent], None],
    ) -> None:
        self._core = core
        self._standing = core.standing
        self._metadata = metadata
        self._feed = feed
        self.pattern: str | None = None
        self.topics: frozenset[str] = frozenset()

    @property
    def any(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def become(self, topics: frozenset[str], pattern: str | None) -> None:
        self.pattern = pattern
        self.topics = topics

    def tell(self) -> None:
        """The member hears of what is wanted now."""
        if self.pattern is None:
            self._feed(protocol.Subscribe(self.topics))
            self.watch()
        else:
            self._metadata.watch(frozenset(), everything=True)
            self._match()

    def watch(self) -> None:
        member = self._standing.member
        if member is not None and self._standing.in_group and self.pattern is None:
            self._metadata.watch(member.topics_of_interest | self.topics)

    def metadata_changed(self, asked: frozenset[str] | None) -> None:
        core = self._core
        if self._standing.member is None or not self._standing.in_group:
            return
        known = core.view.topics
        names = frozenset(known) if asked is None else asked
        racks: dict[str, tuple[frozenset[str], ...]] = {}
        if core.options.client_rack:
            racks = {name: self._racks(name) for name in names if name in known}
        self._match()
        self._feed(
            protocol.Metadata(
                core.view.counts(names),
                asked=asked,
                complete=asked is None,
                ids={name: known[name].id for name in names if name in known and known[name].id is not None},
                racks=racks,
            )
        )

    def _racks(self, topic: str) -> tuple[frozenset[str], ...]:
        view = self._core.view
        partitions = view.topics[topic].partitions
        return tuple(
            frozenset(
                broker.rack
                for replica in partitions[index].replicas
                if (broker := view.brokers.get(replica)) is not None and broker.rack
            )
            for index in sorted(partitions)
        )

    def _match(self) -> None:
        """Which topics the pattern means now."""
        view, member = self._core.view, self._standing.member
        if self.pattern is None or not self._metadata.complete:
            return
        wanted = compiled(self.pattern)
        hide = self._core.options.exclude_internal_topics
        topics = frozenset(
            name
            for name, topic in view.topics.items()
            if topic.partitions and not (hide and topic.internal) and wanted.fullmatch(name)
        )
        assert member is not None
        if (topics, self.pattern) != (self.topics, member.pattern):
            self.topics = topics
            self._feed(protocol.Subscribe(topics, self.pattern))
