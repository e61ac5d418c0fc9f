"""A string that is never shown: a password, key or token."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

HIDDEN = "[hidden]"
"""As Kafka shows a password (Password.HIDDEN)."""


class Secret:
    """Holds a password, key or token, and shows it in no repr, log or pickle.

    The code that sends the secret calls `reveal`.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret string."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret can't be pickled; read the options in the process that needs them")

    def __deepcopy__(self, memo: Any) -> Secret:
        return self


# The pattern of a token provider's name: MODULE:FUNCTION.
PROVIDER_NAME: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_secret(option: str) -> bool:
    """Return whether an option's name suggests a secret. This includes misspelt names such as "pasword"."""
    name = option.lower().replace("-", "").replace("_", "").replace(".", "")
    words = (
        "passw",
        "pasw",
        "pwd",
        "secret",
        "token",
        "jaas",
        "credential",
        "keyfile",
        "keypem",
        "sslkey",
        "storekey",
    )
    return any(word in name for word in words) and not name.endswith(("url", "provider"))


def is_secret_value(option: str, value: object) -> bool:
    """Return whether an option's value is a secret.

    A value is a secret if the option's name suggests it, or if it is a token where the name of a token
    provider is expected.
    """
    if isinstance(value, str) and option.lower().replace(".", "_").endswith("token_provider"):
        return PROVIDER_NAME.fullmatch(value) is None
    return is_secret(option)
