"""`kproto show`: the fields of messages, the tables of state machines, and the HTML guide."""

from __future__ import annotations

import argparse
import functools
import shutil
from pathlib import Path

from .arguments import Subparsers, api
from .machines import MACHINES, drawing_of


def add(commands: Subparsers) -> None:
    show = commands.add_parser(
        "show",
        help="show the fields of a message in each version, or a state machine",
        description="Print the fields of a message with their versions and KIPs, or the table of a state "
        "machine. `kproto versions` lists the APIs.",
    )
    show.add_argument(
        "message",
        nargs="?",
        type=_message,
        metavar="MESSAGE",
        help="an API (JoinGroup, or its key 11), a message by Kafka's name (JoinGroupRequest, "
        "ConsumerProtocolSubscription), or a state machine (" + ", ".join(MACHINES) + ")",
    )
    show.add_argument("--version", type=int, metavar="N", help="show only the fields of this version")
    show.add_argument(
        "--html", type=Path, metavar="DIR", help="write the guide to all messages into this directory"
    )
    show.add_argument(
        "--life",
        type=Path,
        metavar="FILE",
        help="draw the timeline of an example group into this file (SVG): members join, one dies, the "
        "topic grows",
    )
    show.add_argument("--svg", type=Path, metavar="FILE", help="draw a state machine into this file (SVG)")
    show.set_defaults(run=functools.partial(_show, show))


def _message(text: str) -> str:
    """Return the full name of the API, message or state machine that `text` names."""
    from ..messages.index import names

    exact = {name.lower(): name for name in names()}
    return text if text in MACHINES else exact.get(text.lower()) or api(text)


def _show(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from ..errors import ConfigError
    from ..inspect import guide, machines

    for option, path in (("--html", options.html), ("--life", options.life)):
        if path is not None and (options.message or options.version is not None):
            raise ConfigError(option, str(path), "allowed only without a MESSAGE and without --version")
    files = [path for path in (options.html, options.life, options.svg) if path is not None]
    if len(files) > 1:
        raise ConfigError("FILE", str(files[-1]), "allowed: one of --html, --life and --svg")
    if options.version is not None and options.message in MACHINES:
        raise ConfigError("--version", options.version, "allowed only for a message, not for a state machine")
    if options.html is not None:
        return _write_files("--html", options.html / "index.html", dict(guide.pages()))
    if options.life is not None:
        from ..scenarios.group_life import drawn

        return _write_files("--life", options.life, {options.life.name: drawn()})
    if options.svg is not None:
        if options.message not in MACHINES:
            names = ", ".join(MACHINES)
            raise ConfigError("--svg", str(options.svg), f"allowed only for a state machine: {names}")
        return _write_files(
            "--svg",
            options.svg,
            {options.svg.name: machines.picture(options.message, drawing_of(options.message))},
        )
    if options.message in MACHINES:
        width = shutil.get_terminal_size((110, 24)).columns
        print(machines.text(options.message, drawing_of(options.message), width), end="")
        return 0
    if options.message is None:
        parser.error(
            "name a MESSAGE, such as JoinGroup or JoinGroupRequest (`kproto versions` lists the APIs), "
            "or give --html DIR or --life FILE"
        )
    versions = guide.messages_of(options.message)[0].__versions__
    if options.version is not None and options.version not in versions:
        raise ConfigError("--version", options.version, f"{options.message} has the versions {versions}")
    width = shutil.get_terminal_size((110, 24)).columns
    print(guide.text(options.message, options.version, width), end="")
    return 0


def _write_files(option: str, shown_path: Path, files: dict[str, str]) -> int:
    """Write the files into the directory of `shown_path`, then print `shown_path`."""
    from ..errors import ConfigError

    try:
        shown_path.parent.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (shown_path.parent / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            option,
            str(shown_path),
            f"cannot be written: {error.strerror}; allowed: a path in a writable directory",
        ) from None
    print(shown_path)
    return 0
