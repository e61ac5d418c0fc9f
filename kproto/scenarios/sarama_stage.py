"""A wrapper around sarama's model that records request versions, for scenarios about sarama's releases."""

from __future__ import annotations

from msgspec import structs

from ..messages.offset_commit import OffsetCommitRequest
from ..models import contract, sarama
from ..wire.message import Message


class RecordedVersions:
    """A wrapper that lets sarama's model use brokers that no longer support all of the model's versions.

    `spoken` maps each request class to the version that the model chose last. `commits` lists the model's
    OffsetCommit requests, each with its version.

    If current brokers no longer support the version of a request, it is sent with the lowest version that
    they support.
    """

    VERSIONS = sarama.VERSIONS

    def __init__(self) -> None:
        # `history.name` reads this attribute to name the client in reports.
        self.__name__ = sarama.__name__
        self.spoken: dict[type[Message], int] = {}
        self.commits: list[tuple[int, OffsetCommitRequest]] = []

    def start(self, config: contract.ModelConfig) -> sarama.SaramaState:
        return sarama.start(config)

    def step(
        self, state: sarama.SaramaState, event: contract.ModelEvent, now: int
    ) -> list[contract.ModelAction]:
        return [self._lifted(action) for action in sarama.step(state, event, now)]

    def next_deadline(self, state: sarama.SaramaState) -> int | None:
        return sarama.next_deadline(state)

    def _lifted(self, action: contract.ModelAction) -> contract.ModelAction:
        if not isinstance(action, contract.SendRequest):
            return action
        kind = type(action.request)
        self.spoken[kind] = action.version
        if isinstance(action.request, OffsetCommitRequest):
            self.commits.append((action.version, action.request))
        return structs.replace(action, version=max(action.version, kind.__versions__.min))
