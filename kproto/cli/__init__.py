"""The command `kproto`: one module per subcommand, and the printing of errors as one-line messages.

In each module, `add(commands)` declares the arguments of a subcommand. A subcommand only parses arguments,
calls the library and prints.

Most of the library is imported inside the functions, so that `kproto --help` is fast.

`EXIT_CODES` describes the exit codes for users.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper

from ..errors import ConfigError, KprotoError, brief, without_long_words
from ..version import __version__
from . import (
    acls,
    assign,
    broker,
    cluster,
    completion,
    configs,
    consume,
    decode,
    demo,
    encode,
    groups,
    member,
    offsets,
    produce,
    quotas,
    rules,
    scenario,
    show,
    tokens,
    topics,
    transactions,
    users,
    versions,
    watch,
)
from .arguments import LOGIN, Parser, without_secrets, without_values

_COMMANDS = (
    demo,
    scenario,
    watch,
    broker,
    member,
    topics,
    groups,
    offsets,
    consume,
    produce,
    configs,
    acls,
    users,
    tokens,
    quotas,
    transactions,
    cluster,
    decode,
    encode,
    show,
    assign,
    rules,
    versions,
    completion,
)
EXIT_CODES = (
    "Exit codes: 0 success; 1 the command failed, found a fault or could not write its output; 2 invalid "
    "arguments; 130 Ctrl-C."
)
_COMMAND_NAMES = tuple(command.__name__.rpartition(".")[2] for command in _COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    Parser.words = words
    parser, commands = build_parser(words[0] if words and words[0] in _COMMAND_NAMES else None)
    if not words:
        parser.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in _COMMAND_NAMES:
        close_matches = difflib.get_close_matches(words[0], _COMMAND_NAMES, n=1, cutoff=0.6)
        hint = (
            f"did you mean {close_matches[0]}?"
            if close_matches
            else f"available: {', '.join(_COMMAND_NAMES)}"
        )
        text = f"kproto: the command {brief(without_values(words[:1]))} does not exist; {hint}"
        print(without_secrets(text, words), file=sys.stderr)
        return 2
    option_names = [name for action in parser.actions() for name in action.option_strings]
    if words[0].startswith("-") and not any(name.startswith(words[0]) for name in option_names):
        parser.error(f"{without_values(words)}: this option does not exist, or the COMMAND is missing")
    _reopen_closed_streams()
    options, unknown = parser.parse_known_args(words)
    if options.command is None:
        parser.error(f"{without_values(words)}: this option does not exist, or the COMMAND is missing")
    if unknown:
        commands[options.command].error(f"unrecognized arguments: {without_values(unknown)}")
    run: Callable[[argparse.Namespace], int] = options.run
    _set_output_encoding(as_json=getattr(options, "json", False))
    try:
        exit_code = run(options)
        sys.stdout.flush()  # Without the flush, a failing write would raise only when Python exits.
        return exit_code
    except ConfigError as error:
        text = without_long_words(without_secrets(str(_mask_config_error(error)), words))
        print(f"kproto {options.command}: {text}", file=sys.stderr)
        return 2
    except KprotoError as error:
        text = without_long_words(without_secrets(str(error), words))
        print(f"kproto {options.command}: {text}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _discard_unwritten_output()
        return 1
    except OSError as error:
        print(f"kproto {options.command}: {error.strerror or error}", file=sys.stderr)
        _discard_unwritten_output()
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def _mask_config_error(error: ConfigError) -> ConfigError:
    """Return the error without secrets: secret values are hidden, and credentials in addresses are masked."""
    from consumer.security.secret import HIDDEN, is_secret_value, mask_login

    if not isinstance(error.value, str) or not error.value:
        return error
    if is_secret_value(error.option.lstrip("-"), error.value):
        return ConfigError(error.option, HIDDEN, error.allowed)
    if LOGIN.search(error.value):
        return ConfigError(error.option, mask_login(error.value), error.allowed)
    return error


def _reopen_closed_streams() -> None:
    """Open os.devnull as stdin and stdout if the process was started with these streams closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _set_output_encoding(*, as_json: bool) -> None:
    """Make stdout escape characters that the terminal cannot encode. JSON is always written as UTF-8."""
    stdout: object = sys.stdout
    if isinstance(stdout, TextIOWrapper):
        stdout.reconfigure(encoding="utf-8" if as_json else None, errors="backslashreplace")


def _discard_unwritten_output() -> None:
    """Discard buffered output that cannot be written, so that Python does not try to write it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())
            os.close(devnull)


def build_parser(
    name: str | None = None,
) -> tuple[Parser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of `kproto`, and a map from each command to its parser.

    With `name`, only the parser of this command is added, because building all parsers takes 50 ms.
    """
    parser = Parser(
        prog="kproto",
        description="Kafka's consumer protocol in Python: an embedded broker, group members, scenarios, and "
        "tools for bytes.",
        epilog=f"`kproto COMMAND --help` describes the arguments of a command. {EXIT_CODES}",
    )
    # `kproto completion` needs the parsers of all commands.
    parser.set_defaults(build_parser=build_parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    parser.add_argument("--version", action="version", version=f"kproto {__version__}")
    for command, command_name in zip(_COMMANDS, _COMMAND_NAMES, strict=True):
        if name in (None, command_name):
            command.add(commands)
    return parser, commands.choices
