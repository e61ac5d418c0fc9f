"""The entry of one API in the broker's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...messages.api_versions import ApiVersion
from ...messages.index import API_NAMES
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, Refuse, Result
from .authorization import Access, Authorization, Authorized


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API as this broker serves it.

    `handle` executes a request that `authorization` has narrowed; None requires no permission. `refuse`
    builds the response that refuses a whole request; None leaves that to the group coordinator.
    `min_version` and `max_version` are advertised in place
    of the lowest and highest version that the request message declares.
    """

    request: type[Message]
    handle: Callable[[Broker, Call], Result]
    authorization: Authorization | None = None
    refuse: Refuse | None = None
    min_version: int | None = None
    max_version: int | None = None

    @property
    def key(self) -> int:
        """Kafka's API key."""
        assert self.request.__api_key__ is not None
        return self.request.__api_key__

    @property
    def name(self) -> str:
        """Kafka's name of the API, such as OffsetCommit."""
        return API_NAMES[self.key]

    def versions(self, highest: int | None = None) -> ApiVersion:
        """Return the versions that ApiVersions advertises, none above `highest`."""
        declared = self.request.__versions__
        low = declared.min if self.min_version is None else self.min_version
        high = declared.max if self.max_version is None else self.max_version
        return ApiVersion(
            api_key=self.key, min_version=low, max_version=high if highest is None else min(high, highest)
        )

    def authorize(self, broker: Broker, call: Call) -> Authorized:
        """Narrow a call to what its caller may do.

        Returns its response if nothing is left to execute.
        """
        if self.authorization is None or (broker.acls is None and call.injected_error is None):
            return call
        return self.authorization.narrow(Access(broker, call), call.request)
