"""Parsers of command-line arguments. Their error messages say what is allowed."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Protocol, TypeVar, cast

from ..addresses import bracketed
from ..errors import ConfigError, without_long_words

if TYPE_CHECKING:
    from consumer import TopicPartition
    from consumer.security import SecurityConfig


T = TypeVar("T")

_MAX_DURATION_MS = 366 * 86_400_000

# A width (columns) so large that argparse writes each usage message on one line.
_UNLIMITED_WIDTH = 100_000
# The escape sequences with which argparse colors usage messages in Python 3.14 and later.
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class HelpFormatter(argparse.HelpFormatter):
    """Formats help texts for the width of the terminal, without breaking words at their hyphens.

    A group of exclusive options that is too long for one line is split over several lines. argparse itself
    breaks words at hyphens, but leaves such a group on one line.
    """

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None
    ) -> str:
        width, self._width = self._width, _UNLIMITED_WIDTH
        line = _COLOR.sub("", super()._format_usage(usage, actions, groups, prefix)).strip()
        self._width = width
        # The prefix is empty if `add_subparsers` requests the usage message of a command. argparse puts this
        # message before the names of the command's subcommands, so it must be one line.
        if prefix == "":
            return line
        title = f"usage: {self._prog}"
        parts = _usage_parts(line.removeprefix(title))
        # Continuation lines of the usage are indented up to the first option. If an option would then exceed
        # the width of the terminal, the indentation is 8 columns.
        indent = " " * (len(title) + 1)
        longest_piece = max(map(len, _split_long_groups(parts, width - len(indent))), default=0)
        if len(indent) + longest_piece > width:
            indent = " " * 8
        lines = [title]
        for piece in _split_long_groups(parts, width - len(indent)):
            if len(lines[-1]) + 1 + len(piece) > width:
                lines.append(indent + piece)
            else:
                lines[-1] += f" {piece}"
        return "\n".join(lines) + "\n\n"


def _usage_parts(usage: str) -> list[str]:
    """Return the parts of a usage message: options with their values, arguments, and exclusive groups."""
    parts: list[str] = []
    depth = 0
    for word in usage.split():
        takes_value = bool(parts) and parts[-1].startswith("--") and " " not in parts[-1]
        if depth or takes_value:
            parts[-1] += f" {word}"
        else:
            parts.append(word)
        depth += sum(word.count(bracket) for bracket in "[(") - sum(word.count(bracket) for bracket in "])")
    return parts


def _split_long_groups(parts: Iterable[str], width: int) -> list[str]:
    """Return the parts of a usage message. Each group of options that is longer than `width` is split."""
    return [
        piece
        for part in parts
        for piece in ([part] if len(part) <= width else part.replace(" | ", " |\n").split("\n"))
    ]


# A user name and a password before an address, as in alice:PASSWORD@host:9092.
LOGIN: Final = re.compile(r"[^\s@](?::|%3a)[^\s@]+(?:@|%40)", re.IGNORECASE)
# An option with its value in one word, such as --password=PASSWORD or ssl.key.password=PASSWORD.
_OPTION: Final = re.compile(r"(-*[\w.-]+)([=: ])(.+)", re.DOTALL)
# The name of an option that does not exist. In words such as -pPASSWORD, only the first two characters are
# the name, because the rest may be a password.
_UNKNOWN_OPTION: Final = re.compile(r"-[pPuUwW](?!\w*-)|-[^\s=:]+[=:]?")
# The name of a parameter of a URL, as in host:9092?password=PASSWORD.
_PARAMETER: Final = re.compile(r"[?&;#\[{(, ]([\w.-]+)\s*=")
# An option whose value may contain a user name and a password.
_USER_OPTION: Final = re.compile(r"-[uU]|--?\S*(user|login|cred|account|sasl)\S*", re.IGNORECASE)
# The start of the value of a `_USER_OPTION`, up to the password.
_USER_NAME: Final = re.compile(r"(User:)?[^:=/,]*[:=/,](?!\d+$)", re.IGNORECASE)


def without_secrets(message: str, words: Sequence[str]) -> str:
    """Return an error message in which the passwords from the command line `words` are masked."""
    pairs = [(_name_before(words[:index]), word) for index, word in enumerate(words)]
    pairs += [(name, value) for name, _, value in (word.partition("=") for word in words)]
    masks: dict[str, str] = {}
    for option_name, word in pairs:
        mask = _mask_word(word, option_name)
        if word and mask != word:
            masks |= {word: mask, repr(word)[1:-1]: mask}
    if not masks:
        return message
    # All words are replaced in one pass, so that no mask is masked again.
    longest_first = sorted(masks, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: masks[match[0]], message)


def without_values(words: Sequence[str]) -> str:
    """Return the text of unrecognized arguments for an error message, without the values of options.

    The value of an option that does not exist may be a password, as in --user alice:PASSWORD. All words up to
    the next option count as values.
    """
    shown: list[str] = []
    for word in words:
        option = _UNKNOWN_OPTION.match(word)
        if option is not None:
            shown.append(f"{option[0]}..." if option.end() < len(word) else word)
        elif not shown or not shown[-1].startswith("-"):
            # The word may be NAME:PASSWORD, unless it is TOPIC:PARTITIONS or HOST:PORT.
            name = _USER_NAME.match(word) if ":" in word else None
            shown.append(word if name is None else f"{name[0]}...")
        elif not shown[-1].endswith("..."):
            shown[-1] += " ..."
    return " ".join(shown)


def _name_before(words: Sequence[str]) -> str:
    """Return the option or setting whose value the word after `words` may be.

    Usually, the name is the last word of `words`. In `--password = X`, `password= X` and `--set password X`,
    however, the name before the word X is --password.
    """
    before_last, last = ["", "", *words][-2:]
    name = (before_last if last in ("=", ":") else last).rstrip("=:")
    is_setting = before_last.startswith("-") or name != last
    return f"--{name}" if is_setting and not name.startswith("-") else name


def _mask_word(word: str, option_name: str) -> str:
    """Return a word of the command line with its secrets masked.

    `option_name` is the option or setting whose value the word may be.
    """
    from consumer.security.secret import HIDDEN, is_secret, mask_login

    option = _OPTION.fullmatch(word)
    if option is not None and is_secret(option[1].lstrip("-")):
        return f"{option[1]}{option[2]}{HIDDEN}"
    is_option_name = option_name.startswith("--") and "=" not in option_name
    if is_option_name and is_secret(option_name) and not word.startswith("-"):
        return HIDDEN
    if _USER_OPTION.fullmatch(option_name) and (name := _USER_NAME.match(word)) and name.end() < len(word):
        return f"{name[0]}{HIDDEN}"
    has_secret = any(is_secret(name) for name in _PARAMETER.findall(word))
    if not has_secret and LOGIN.search(word) is None:
        return word
    if option is not None and option[2] == "=":
        return f"{option[1]}={mask_login(option[3])}"
    return mask_login(word)


class Parser(argparse.ArgumentParser):
    """An argument parser whose error messages mask passwords and shorten long words.

    argparse also uses this class for the parsers of the commands, because the main parser has this class.
    """

    # The words of the command line. Error messages mask the passwords that these words contain.
    words: ClassVar[Sequence[str]] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        super().error(without_long_words(without_secrets(message, self.words)))

    def actions(self) -> list[argparse.Action]:
        """Return the declared options and arguments."""
        return list(self._actions)

    def subparsers(self) -> dict[str, Parser]:
        """Return the parsers of the commands or verbs by name; an empty dict if there are none."""
        for action in self._actions:
            if action.dest in ("command", "verb") and action.choices is not None:
                return cast("dict[str, Parser]", action.choices)
        return {}


class Subparsers(Protocol):
    """The return type of `add_subparsers`, which has no public name in argparse."""

    def add_parser(self, name: str, **words: Any) -> argparse.ArgumentParser: ...


def command_config(parser: argparse.ArgumentParser) -> None:
    """Add the option `--command-config`, which Kafka's command-line tools also have."""
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="Java's client.properties, with the TLS and SASL settings of the cluster",
    )


def client_security(path: Path) -> SecurityConfig:
    """Return the client settings in the file that `--command-config` names.

    Raises ConfigError, which names the option, if the file cannot be read or its settings are not allowed.
    """
    from consumer.security import client_properties

    return _from_command_config(lambda: client_properties(path, "admin"))


def registry_properties(path: Path) -> dict[str, str]:
    """Return the schema registry's properties from the file that `--command-config` names.

    Raises a ConfigError that names the option, if the file cannot be read.
    """
    from consumer.security.properties import about_registry

    return _from_command_config(lambda: about_registry(path))


def _from_command_config(read: Callable[[], T]) -> T:
    try:
        return read()
    except ConfigError as error:
        if error.option != "path":
            raise
        raise ConfigError("--command-config", error.value, error.allowed) from None


def read_secret(variable: str, prompt: str) -> str:
    """Return a secret from an environment variable, or else from a line of the terminal or stdin.

    A command-line argument would be stored in the shell's history, and would be visible to other users of the
    computer.
    """
    text = os.environ.get(variable)
    if text is None:
        text = getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    return text


def write(option: str, path: Path, text: str) -> None:
    """Write a file that an option names. Raises ConfigError if the file is not writable."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            option, str(path), f"cannot be written: {error.strerror or error}; allowed: a writable file"
        ) from None


def key_values(option: str, words: Iterable[str]) -> dict[str, str]:
    """Parse the values NAME=VALUE of a repeated option. Each name may occur once."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or name in pairs:
            raise ConfigError(option, word, "allowed: NAME=VALUE, with each name once")
        pairs[name] = value
    return pairs


def topic_partitions(
    option: str, word: str, partitions_of: Callable[[str], list[TopicPartition]]
) -> list[TopicPartition]:
    """Return the partitions that TOPIC or TOPIC:P,P names.

    For TOPIC, `partitions_of` returns the partitions of the topic.
    """
    from consumer import TopicPartition

    topic, colon, numbers = word.partition(":")
    if not colon:
        return partitions_of(topic)
    parsed = [parse_int32(number) for number in numbers.split(",")]
    if not topic or min(parsed) < 0:
        raise ConfigError(
            option, word, "allowed: a topic, or TOPIC:P,P for some of its partitions (flights:0,2)"
        )
    return [TopicPartition(topic, number) for number in parsed]


def parse_digits(text: str) -> int:
    """Parse a whole number of at most 18 digits; return -1 for any other string."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1


def parse_int32(text: str) -> int:
    """Parse a node id or partition number, from 0 to 2^31 - 1. Return -1 for any other text."""
    number = parse_digits(text)
    return number if number < 2**31 else -1


def node_id(text: str) -> int:
    number = parse_int32(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a node id (a number from 0 to {2**31 - 1})")
    return number


def node_ids(text: str) -> list[int]:
    """Parse the node ids of brokers, separated by commas."""
    nodes = [parse_int32(word) for word in text.split(",")]
    if min(nodes) < 0 or len(set(nodes)) < len(nodes):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different node ids, such as 1,2,3")
    return nodes


def positive(text: str) -> int:
    number = parse_digits(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0 and up to 86400 (a day)"
        )
    return number


def duration(text: str) -> int:
    """Parse a duration such as 400ms, 4s, 10m or 1h, and return it in ms."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 400ms, 4s, 10m or 1h")
    ms = float(match[1]) * {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}[match[2]]
    if ms > _MAX_DURATION_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is too long; the longest time is a year, 8784h")
    return int(ms)


def positive_duration(text: str) -> int:
    """Parse a duration above 0, and return it in ms."""
    milliseconds = duration(text)
    if milliseconds < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0, such as 400ms, 4s, 10m or 1h")
    return milliseconds


def whole_number(text: str) -> int:
    """Parse a whole number, which may be negative."""
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def rate(text: str) -> int:
    """Return the number of events per second in a rate such as 100/s."""
    number = parse_digits(text.removesuffix("/s"))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 100/s")
    return number


def port(text: str) -> int:
    number = parse_digits(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return number


def _name_and_version(text: str, example: str) -> tuple[str, int]:
    name, _, version = text.rpartition(":")
    if not name or parse_digits(version) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:VERSION, such as {example}")
    return name, parse_digits(version)


def api(text: str) -> str:
    """Return the name of the API with this key, name or message name. The case of a name is ignored."""
    from ..messages.index import API_NAMES, no_message

    name_or_key = text.lower().removesuffix("response").removesuffix("request")
    for key, name in API_NAMES.items():
        if name_or_key in (name.lower(), str(key)):
            return name
    raise argparse.ArgumentTypeError(f"{no_message(text)} (`kproto versions` lists the APIs)")


def api_version(text: str) -> tuple[str, int]:
    """Parse API:VERSION. Return the API's name and the version of its response.

    Any version of ApiVersions is allowed, because brokers also respond to an ApiVersions request of an
    unknown version (KIP-511).
    """
    from ..messages.index import message_class

    name, version = _name_and_version(text, "Fetch:17")
    api_name = api(name)
    versions = message_class(f"{api_name}Response").__versions__
    if version not in versions and api_name != "ApiVersions":
        raise argparse.ArgumentTypeError(f"{api_name} has no version {version}; its versions are {versions}")
    return api_name, version


def message_version(text: str) -> tuple[str, int]:
    """Parse MESSAGE:VERSION, such as JoinGroupRequest:9."""
    from ..messages.index import message_class, no_message

    name, version = _name_and_version(text, "JoinGroupRequest:9")
    try:
        versions = message_class(name).__versions__
    except KeyError:
        raise argparse.ArgumentTypeError(no_message(name)) from None
    if version not in versions:
        raise argparse.ArgumentTypeError(f"{name} has no version {version}; its versions are {versions}")
    return name, version


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. The host is returned without brackets."""
    host, _, port = text.rpartition(":")
    number = parse_digits(port)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"the port of {text!r} is above 65535")
    name = host.removeprefix("[").removesuffix("]")
    if not name or number < 0 or bracketed(name) != host:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092")
    return name, number


def topic(text: str) -> tuple[str, int]:
    """Parse NAME:PARTITIONS, with at least one partition."""
    name, _, partitions = text.rpartition(":")
    if not name or parse_digits(partitions) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:PARTITIONS, such as flights:3")
    return name, parse_digits(partitions)


def user(text: str) -> tuple[str, str]:
    """Parse NAME:PASSWORD. The error does not repeat the password."""
    name, colon, password = text.partition(":")
    if not colon or not name or not password:
        raise argparse.ArgumentTypeError("a user is NAME:PASSWORD, such as alice:secret")
    return name, password


def principal(text: str) -> str:
    """Check a principal, such as User:alice."""
    kind, _, name = text.partition(":")
    if not kind or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not TYPE:NAME, such as User:alice")
    return text


def _without_value(text: str) -> str:
    """Return the name at the start of a setting, followed by "..." if the setting is longer."""
    name = re.match(r"[\w.-]*", text)
    return text if name is None or name.end() == len(text) else f"{name[0]}..."


def setting(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE. The error does not repeat the value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(
            # The text may contain a password, as in alice:PASSWORD.
            f"{_without_value(text)!r} is not NAME=VALUE, such as group.initial.rebalance.delay.ms=0"
        )
    return name, value
