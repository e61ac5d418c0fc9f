"""A text that is never shown."""

from __future__ import annotations

from typing import Any, NoReturn

HIDDEN = "[hidden]"
"""As Kafka shows a password (Password.HIDDEN)."""


class Secret:
    """A password, key or token. It appears in no repr, text or pickle. `reveal` returns it to the code that
    sends it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a secret can't be pickled; give the options to whoever needs them, and read them there"
        )

    def __deepcopy__(self, memo: Any) -> Secret:
        return self


def is_secret(option: str) -> bool:
    """Return whether the name of an option suggests a secret, even if it is misspelt."""
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
