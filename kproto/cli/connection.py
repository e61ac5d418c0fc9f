"""What the commands that send requests to a cluster share: their options, their clients and their errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BrokerError, ConnectionFailed, KprotoError, PartialFailure, RequestTimedOut
from ..printable import escape_unprintable
from .arguments import Subparsers, client_security, command_config, seconds

if TYPE_CHECKING:
    from consumer import Admin

Run = Callable[[argparse.Namespace], int]
T = TypeVar("T")


def add_verbs(commands: Subparsers, name: str, *, help_text: str, description: str) -> Subparsers:
    """Add a command with verbs, such as `list` in `kproto topics list`; return the verbs' parsers."""
    parser = commands.add_parser(name, help=help_text, description=description)
    return parser.add_subparsers(dest="verb", metavar="VERB", required=True)


def add_verb(
    verbs: Subparsers, name: str, run: Run, help_text: str, *, description: str = "", epilog: str = ""
) -> argparse.ArgumentParser:
    """Add a verb with the options of the connection. `run` executes the verb and returns the exit code."""
    text = description or f"{help_text[0].upper()}{help_text[1:]}."
    parser = verbs.add_parser(name, help=help_text, description=text, epilog=epilog)
    add_connection(parser)
    parser.set_defaults(run=run)
    return parser


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options of a connection: the cluster, its security, a timeout, and JSON output."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",  # The name of this option in Kafka's tools.
        required=True,
        metavar="HOST:PORT",
        help="one or more brokers of the cluster, separated by commas",
    )
    command_config(parser)
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS", help="default: 30 seconds"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_execute(parser: argparse.ArgumentParser, change: str) -> None:
    """Add the option `--execute` to a command that otherwise only prints its plan."""
    parser.add_argument(
        "--execute", action="store_true", help=f"{change}; without it, the command only prints its plan"
    )


def client_options(options: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Return a client's options: `more`, overridden by the file of `--command-config`."""
    file = options.command_config
    return {"client_id": "kproto-cli", **more, **({} if file is None else client_security(file))}


@contextmanager
def admin_client(options: argparse.Namespace) -> Generator[Admin]:
    """Yield an admin client for the cluster that the options name."""
    from consumer import Admin

    with Admin(options.bootstrap, **client_options(options), timeout=options.timeout) as admin:
        yield admin


def succeeded(call: Callable[[], dict[Any, Any] | None], failures: list[KprotoError]) -> dict[Any, Any]:
    """Return the results of a call about several items; add the errors of failed items to `failures`.

    A command can then print the results of the other items before the errors.
    """
    try:
        return call() or {}
    except PartialFailure as error:
        failures += error.failed.values()
        return error.succeeded


def done_items(items: Iterable[T], call: Callable[[T], object], failures: list[KprotoError]) -> Iterator[T]:
    """Call `call` for each item, and yield the items for which it succeeds.

    The errors with which brokers answer are added to `failures`. Other errors, which concern all items, are
    raised. If no broker answers the request for an item, the remaining items are not tried: each of them
    would take the whole timeout.
    """
    remaining = list(items)
    while remaining:
        item = remaining.pop(0)
        try:
            call(item)
        except PartialFailure as error:
            failures += error.failed.values()
            if all(isinstance(cause, (RequestTimedOut, ConnectionFailed)) for cause in error.failed.values()):
                if remaining:
                    failures.append(KprotoError(f"no broker answers; not tried: {len(remaining)} more"))
                return
        except BrokerError as error:
            failures.append(error)
        else:
            yield item


def exit_code(command: str, failures: list[KprotoError]) -> int:
    """Print each error as one line on stderr; return 1 if there are errors, else 0.

    If several errors have the same text, for example because the broker does not support the request, the
    text is printed once.
    """
    for text in dict.fromkeys(map(str, failures)):
        print(f"kproto {command}: {escape_unprintable(text)}", file=sys.stderr)
    return 1 if failures else 0


def say_not_executed(outcome: str) -> int:
    """Print `outcome` and a hint that --execute is needed, and return the exit code."""
    print(f"{outcome}; add --execute to do it", file=sys.stderr)
    return 0
