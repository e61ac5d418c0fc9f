"""A string that is never shown: a password, key or token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

# Kafka, too, shows this text instead of a password (Password.HIDDEN).
HIDDEN = "[hidden]"


class Secret:
    """Holds a password, key or token. Its repr is masked, and it cannot be pickled.

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


class HiddenText(str):
    """A str whose repr is masked, for code that requires a str.

    Some tools print the local variables of a traceback. They call the repr of each string, even inside a
    dict, and so print the mask instead of the secret.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


# The pattern of a token provider's name: MODULE:FUNCTION.
PROVIDER_NAME: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_secret(option: str) -> bool:
    """Return whether an option's name suggests a secret. This includes misspelt names such as "pasword"."""
    name = option.lower().replace("-", "").replace("_", "").replace(".", "")
    words = (
        "passw",
        "pasw",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "jaas",
        "credential",
        "hmac",
        "keyfile",
        "keypem",
        "sslkey",
        "storekey",
        "apikey",
        "accesskey",
        "privatekey",
        "pkcs12",
        "userinfo",
        "authorization",
        "connectionstring",
    )
    if name in ("auth", "pass", "login"):
        return True
    return any(word in name for word in words) and not name.endswith(("url", "provider", "tokenauth"))


def is_secret_value(option: str, value: object) -> bool:
    """Return whether an option's value is a secret.

    A value is a secret if the option's name suggests it. The value of an option for a token provider is a
    secret if it may be a token instead of a provider.
    """
    if option.lower().replace(".", "_").endswith(("token_provider", "oauth_cb")):
        if isinstance(value, str):
            return PROVIDER_NAME.fullmatch(value) is None
        return value is not None and not callable(value)
    return is_secret(option)


# Strings that are shown as addresses: a host name or an IPv6 address, with or without a port. A host name may
# contain spaces by mistake.
_ADDRESS: Final = re.compile(r"[\w.\- ]*(:[+-]?\d*)?|\[?[\da-fA-F:.]*(%\w+)?\]?(:\d*)?")
# The characters that end the login in a URL, and those that begin its parameters. An address that was copied
# from a URL may contain a login and parameters.
_LOGIN_END: Final = re.compile("@|%40|\uff20|\ufe6b", re.IGNORECASE)
_PARAMETERS_START: Final = re.compile(r"[?#;=&/]")


def mask_login(address: str) -> str:
    """Mask the logins in one or more addresses, separated by commas, for an error message.

    An address that was copied from a URL may have a password before "@" or after "?". So only the protocol
    and parts that look like a host or a port are shown.
    """
    scheme, separator, rest = address.partition("://")
    if not separator or not scheme.replace("_", "").isalnum():
        scheme, separator, rest = "", "", address
    *logins, rest = _LOGIN_END.split(rest)
    if logins and ("%40" in address or not address.isascii()):
        return f"{scheme}{separator}{HIDDEN}"  # An encoded "@" may be part of the password.
    login = f"{HIDDEN}@" if logins else ""
    return f"{scheme}{separator}{login}{','.join(map(_mask_address, rest.split(',')))}"


def _mask_address(address: str) -> str:
    """Mask the parts of an address without a login that do not look like a host or a port."""
    if _ADDRESS.fullmatch(address):
        return address
    match = _PARAMETERS_START.search(address)
    if match:
        is_query = match[0] == "?"
        host = address[: match.end() if is_query else match.start()].rstrip("?")
        return f"{_mask_address(host)}{'?' if is_query else ''}{HIDDEN}"
    return f"{address.partition(':')[0]}:{HIDDEN}" if ":" in address else HIDDEN


def mask_logins(value: Any, depth: int = 3) -> Any:
    """Mask the logins in an address, or in a container of addresses, for an error message: see `mask_login`.

    Values in more than `depth` nested containers are not shown, because a container may contain itself.
    """
    if isinstance(value, str):
        return mask_login(value)
    if isinstance(value, bytes):
        shown = mask_login(value.decode("latin-1"))
        return shown.encode("latin-1")
    if isinstance(value, Mapping | list | tuple | set | frozenset) and not depth:
        return "..."
    if isinstance(value, Mapping):
        options: Mapping[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        # With a depth of 0, a key that is a container, such as a tuple, is not shown.
        return {
            mask_logins(key, 0): HIDDEN if is_secret_value(str(key), item) else mask_logins(item, depth - 1)
            for key, item in options.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        entries: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return [mask_logins(entry, depth - 1) for entry in entries]
    if value is None or isinstance(value, int | float):
        return value
    return f"<{type(value).__name__}>"
