"""The subscription of the application (topics or a pattern), and the topic metadata for the member.

* A pattern is not matched until a Metadata response has listed all topics (M201).

* The member receives the partition counts and ids of the topics. With `client_rack`, it also receives the
  racks of their replicas (M92).

* Metadata is kept up to date for the subscribed topics. The group's leader also keeps the metadata of all
  members' topics up to date (M200).
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.group import protocol
from kproto.patterns import compiled

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..metadata.updater import MetadataUpdater


class TopicSubscription:
    """The subscribed topics or the pattern. `apply_event` passes an event to the member."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        apply_event: Callable[[protocol.MemberEvent], None],
    ) -> None:
        self._core = core
        self._status = core.group_status
        self._metadata = metadata
        self._apply_event = apply_event
        self.pattern: str | None = None
        self.topics: frozenset[str] = frozenset()

    @property
    def is_active(self) -> bool:
        """Whether there is a subscription, to topics or to a pattern."""
        return bool(self.topics) or self.pattern is not None

    def replace(self, topics: frozenset[str], pattern: str | None) -> None:
        """Set the subscription. The member gets it when `update_member` is called."""
        self.pattern = pattern
        self.topics = topics

    def update_member(self) -> None:
        """Pass the subscription to the member."""
        if self.pattern is None:
            self._apply_event(protocol.SubscriptionChanged(self.topics))
            self.track_topics()
        else:
            self._metadata.watch(frozenset(), everything=True)
            self._match_pattern()

    def track_topics(self) -> None:
        """Watch the metadata of the topics that the member needs."""
        member = self._status.member
        if member is not None and self._status.in_group and self.pattern is None:
            self._metadata.watch(member.topics_of_interest | self.topics)

    def on_metadata(self, requested: frozenset[str] | None) -> None:
        """Pass metadata to the member. `requested` is the set of requested topics; None means all topics."""
        core = self._core
        if self._status.member is None or not self._status.in_group:
            return
        known_topics = core.view.topics
        names = frozenset(known_topics) if requested is None else requested
        racks: dict[str, tuple[frozenset[str], ...]] = {}
        if core.options.client_rack:
            racks = {name: self._replica_racks(name) for name in names if name in known_topics}
        self._match_pattern()
        self._apply_event(
            protocol.MetadataUpdated(
                core.view.counts(names),
                requested=requested,
                complete=requested is None,
                ids={
                    name: known_topics[name].id
                    for name in names
                    if name in known_topics and known_topics[name].id is not None
                },
                racks=racks,
            )
        )

    def _replica_racks(self, topic: str) -> tuple[frozenset[str], ...]:
        """Return the racks of the replicas of each partition."""
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

    def _match_pattern(self) -> None:
        """Match the pattern; if the matching topics have changed, pass them to the member."""
        view, member = self._core.view, self._status.member
        if self.pattern is None or not self._metadata.complete:
            return
        pattern = compiled(self.pattern)
        hides_internal = self._core.options.exclude_internal_topics
        topics = frozenset(
            name
            for name, topic in view.topics.items()
            if topic.partitions and not (hides_internal and topic.internal) and pattern.fullmatch(name)
        )
        assert member is not None
        if (topics, self.pattern) != (self.topics, member.pattern):
            self.topics = topics
            self._apply_event(protocol.SubscriptionChanged(topics, self.pattern))
