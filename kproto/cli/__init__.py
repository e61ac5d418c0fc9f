"""The command `kproto`: a module for each subcommand, and one place where errors become one sentence.

A module has `add`, which says what the command takes, and does nothing itself but to read arguments, call
what does the work, and print. Imports of that work stay inside of the functions: `kproto --help` is quick.

What each exit code means, `EXIT_CODES` says.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from typing import NoReturn

from ..errors import ConfigError, KprotoError, brief, without_long_words
from ..version import __version__
from . import broker, decode, demo, encode, member, rules, scenario, show, versions, watch

_COMMANDS = (demo, scenario, watch, broker, member, decode, encode, show, rules, versions)
EXIT_CODES = (
    "Exit codes: 0 all is well, 1 the command found something wrong, failed, or nobody read on, "
    "2 the command was not called as its help says, 130 Ctrl-C."
)
_NAMES = tuple(command.__name__.rpartition(".")[2] for command in _COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = _parser()
    if not words:
        parser.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in _NAMES:
        near = difflib.get_close_matches(words[0], _NAMES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_NAMES)}"
        print(f"kproto: there is no command {brief(words[0])}; {hint}", file=sys.stderr)
        return 2
    _open_what_is_closed()
    options, unknown = parser.parse_known_args(words)
    if options.command is None:
        parser.error(f"{' '.join(words)}: there is no such option, or the COMMAND is missing")
    if unknown:
        commands[options.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    run: Callable[[argparse.Namespace], int] = options.run
    out: object = sys.stdout
    if isinstance(out, TextIOWrapper):  # whatever a terminal can't show is escaped, and JSON is UTF-8
        form = "utf-8" if getattr(options, "json", False) else None
        out.reconfigure(encoding=form, errors="backslashreplace")
    try:
        code = run(options)
        sys.stdout.flush()  # what can't be written is met here, and not when Python ends
        return code
    except KprotoError as error:
        print(f"kproto {options.command}: {without_long_words(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:
        _drop_the_rest()
        return 1
    except OSError as error:
        print(f"kproto {options.command}: {error.strerror or error}", file=sys.stderr)
        _drop_the_rest()
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """What says that words of the call are off; those of its commands are such, too."""

    def error(self, message: str) -> NoReturn:
        super().error(without_long_words(message))


def _open_what_is_closed() -> None:
    """Whoever started us may have closed stdin and stdout; then nothing comes in, and nobody reads."""
    for name, mode in (("stdin", "r"), ("stdout", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _drop_the_rest() -> None:
    """What stdout still holds and can't write would fail again when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and those of its commands by name."""
    parser = _Parser(
        prog="kproto",
        description="Kafka's consumer protocol in Python: a broker, a demo, and the protocol's tables.",
        epilog=f"`kproto COMMAND --help` says what each takes. {EXIT_CODES}",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    parser.add_argument("--version", action="version", version=f"kproto {__version__}")
    for command in _COMMANDS:
        command.add(commands)
    return parser, commands.choices
