"""Checks of single options. Each check takes (name, value), and raises ConfigError for an invalid value."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kproto.durations import iso_duration_ms
from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.validation import any_text, encodable_text, one_of, whole_number

Check = Callable[[str, Any], object]


class Option(NamedTuple):
    """One option: a row of the tables `CONSUMER` and `PRODUCER`."""

    section: str  # The section in docs/reference/client-options.md.
    check: Check
    description: str


# Instance ids must match the pattern of topic names, as in Java (Topic.validate).
_INSTANCE_ID = r"[a-zA-Z0-9._-]{1,249}"
_RESET_POLICIES: Final = ("earliest", "latest", "none")
_RESET_POLICIES_TEXT = 'allowed: "earliest", "latest", "none" or "by_duration:PT1H" (an ISO 8601 duration)'


def whole_number_from(least: int, most: int = 2**31 - 1) -> Check:
    """Return a check that accepts whole numbers from `least` to `most`."""
    return lambda name, value: whole_number(name, value, least, most)


def choice(*choices: str | int) -> Check:
    """Return a check that accepts only the given values."""
    return lambda name, value: one_of(name, value, choices)


def or_none(check: Check) -> Check:
    """Return a check that accepts None, and the values that `check` accepts."""
    return lambda name, value: None if value is None else check(name, value)


def text(name: str, value: Any) -> None:
    any_text(name, value)


def group_id(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(name, value, "a string that is not empty, or None for a consumer without a group")
    encodable_text(name, value or "")


def group_protocol(name: str, value: Any) -> None:
    # Imported here because producers do not need this module.
    from kproto.group.members import check_protocol

    check_protocol(name, value)


def transactional_id(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(
            name, value, "a string that is not empty, or None for a producer without transactions"
        )
    encodable_text(name, value or "")


def instance_id(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or value in (".", "..") or not re.fullmatch(_INSTANCE_ID, value):
        raise ConfigError(name, value, "1 to 249 of the characters a-z A-Z 0-9 . _ -, and neither . nor ..")


def reset(name: str, value: Any) -> None:
    """Check a reset policy. The value "" is allowed only for the option `on_out_of_range`."""
    if value in _RESET_POLICIES or (name == "on_out_of_range" and value == ""):
        return
    if not isinstance(value, str) or not value.startswith("by_duration:"):
        raise ConfigError(name, value, _RESET_POLICIES_TEXT)
    try:
        duration_ms(value)
    except ConfigError:
        raise ConfigError(name, value, _RESET_POLICIES_TEXT) from None


def duration_ms(policy: str) -> int | None:
    """Return the duration (ms) in a policy such as "by_duration:PT1H30M"; None for any other policy.

    Raises ConfigError for an invalid duration.
    """
    if not policy.startswith("by_duration:"):
        return None
    ms = iso_duration_ms(policy.removeprefix("by_duration:"))
    if ms is None or ms < 0:
        raise ConfigError("auto_offset_reset", policy, _RESET_POLICIES_TEXT)
    if ms >= 2**63:
        raise ConfigError("auto_offset_reset", policy, f"{_RESET_POLICIES_TEXT} below 2**63 ms")
    return ms


def function_or_object(method: str, parameters: str) -> Check:
    """Return a check that accepts None, a function with these parameters, or an object with this method."""
    allowed = f"a function with the parameters ({parameters}), or an object with such a method {method}()"

    def check(name: str, value: Any) -> None:
        if value is not None:
            function = getattr(value, method, None)
            _check_function(name, value, value if function is None else function, parameters, allowed)

    return check


def dialer(name: str, value: Any) -> None:
    """Check the option `dialer`: None, or a function of (host, port)."""
    if value is not None:
        parameters = "host, port"
        _check_function(name, value, value, parameters, f"a function with the parameters ({parameters})")


def _check_function(name: str, value: Any, function: Any, parameters: str, allowed: str) -> None:
    """Raise ConfigError unless an option's function can be called with these parameters."""
    if isinstance(value, type) or not callable(function):
        raise ConfigError(name, value, allowed)
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some functions written in C have no signature.
        return
    parameter_count = parameters.count(",") + 1
    try:
        signature.bind(*[None] * parameter_count)
    except TypeError:
        raise ConfigError(
            name, value, f"{allowed}; this function has ({_parameter_names(signature)})"
        ) from None


def _parameter_names(signature: inspect.Signature) -> str:
    """Return the names of a function's parameters, separated by commas."""
    return ", ".join(signature.parameters)


def assignors(name: str, value: Any) -> tuple[str | Assignor, ...]:
    """Check assignors: a name, several names separated by commas, or a list. Return them as a tuple."""
    split: Any = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    is_single = callable(value) or not hasattr(split, "__iter__")
    items: list[Any] = [value] if is_single else list(split)
    names = [item.name if isinstance(item, Assignor) else item for item in items]
    allowed = (
        f"allowed: {', '.join(sorted(ASSIGNORS))}, or a kproto.group.assignors.Assignor; one or several, "
        "each once"
    )
    if any(callable(item) for item in items):
        allowed = "a function needs a name for the group: kproto.group.assignors.Assignor(NAME, FUNCTION)"
    are_known = all(
        isinstance(item, Assignor) or (isinstance(item, str) and item in ASSIGNORS) for item in items
    )
    if not items or not are_known or len(set(names)) != len(names):
        raise ConfigError(name, value, allowed)
    return tuple(items)
