"""The type of the entries in the broker's table of APIs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...messages.api_versions import ApiVersion
from ...messages.index import API_NAMES, response_class
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, Refuse, Result
from .authorization import Access, Authorization, Authorized


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API that this broker serves: its versions, handler and required permissions.

    `authorization` reduces a request to the parts that the caller is permitted to execute. `authorization` is
    None if the API requires no permission.

    `handle` executes the permitted parts of a request.

    `refuse` builds the response that rejects a whole request. It is None if the group coordinator builds that
    response.

    `min_version` and `max_version`, if set, are advertised instead of the lowest and highest version that the
    request message declares.

    `divided` is the name of the array of results in the response, or several names if the name depends on the
    version.

    If `divided` is set, a large request is served in pieces (`LargeRequest`).

    With `unique`, the response has a single result for an element that the request contains twice.
    """

    request: type[Message]
    handle: Callable[[Broker, Call], Result]
    authorization: Authorization | None = None
    refuse: Refuse | None = None
    min_version: int | None = None
    max_version: int | None = None
    divided: tuple[str, ...] = ()
    unique: bool = False

    @property
    def key(self) -> int:
        """Kafka's API key."""
        assert self.request.__api_key__ is not None
        return self.request.__api_key__

    @property
    def name(self) -> str:
        """Kafka's name for the API, such as OffsetCommit."""
        return API_NAMES[self.key]

    def versions(self, highest: int | None = None) -> ApiVersion:
        """Return the versions that ApiVersions advertises, capped at `highest`."""
        declared = self.request.__versions__
        low = declared.min if self.min_version is None else self.min_version
        high = declared.max if self.max_version is None else self.max_version
        return ApiVersion(
            api_key=self.key, min_version=low, max_version=high if highest is None else min(high, highest)
        )

    def divided_array(self, version: int) -> str | None:
        """Return the name of the result array in responses of this version, or None if the API has none."""
        fields = response_class(self.key).__fields__
        return next((f.name for f in fields if f.name in self.divided and version in f.versions), None)

    def authorize(self, broker: Broker, call: Call) -> Authorized:
        """Return the call with only those parts of its request for which the caller has permission.

        If the caller lacks a permission without which the handler must not run, such as one on the cluster,
        the result is a response instead.
        """
        # A call with an injected error is authorized as if its caller had no permissions. The broker replaces
        # the resulting errors in the response by the injected error.
        is_unrestricted = broker.acls is None and call.injected_error is None
        if self.authorization is None or is_unrestricted:
            return call
        return self.authorization.narrow(Access(broker, call), call.request)
