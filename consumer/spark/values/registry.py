"""The schema registry whose address is in the options of a query."""

from __future__ import annotations

from collections.abc import Mapping

from kproto.errors import ConfigError

from ...schema_registry.registry import OptionNames, Registry
from .names import REGISTRY_URL, REGISTRY_USER

_NAMES = OptionNames(REGISTRY_URL, REGISTRY_USER, "value.subject or key.subject")


def registry(options: Mapping[str, str]) -> Registry | None:
    """Return the registry that the options name, or None if they name none.

    Raises ConfigError for an invalid URL or user, and for a user without a URL.
    """
    url, user = options.get(REGISTRY_URL), options.get(REGISTRY_USER)
    if url is None:
        if user is not None:
            raise ConfigError(REGISTRY_USER, "(given)", f"set {REGISTRY_URL} as well")
        return None
    return Registry.at(url, user, _NAMES)
