"""What MkDocs asks while it builds: the pages that are made from the source, and none of which is committed.

The API comes from docstrings, the command line from argparse, the protocol from the messages, the stories
from the scenarios. `generated()` is all of them: the tests read it, too.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent


# ---- MkDocs


def on_config(config: Any) -> Any:
    """`lessons/*` in the navigation are the pages that are there."""
    config.nav = _filled(config.nav)
    return config


def _filled(nav: Any) -> Any:
    if isinstance(nav, dict):
        return {title: _filled(part) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    found: list[Any] = []
    for part in nav:
        if isinstance(part, str) and part.endswith("/*"):
            folder = DOCS / part.removesuffix("/*")
            found += [path.relative_to(DOCS).as_posix() for path in sorted(folder.glob("*.md"))]
        else:
            found.append(_filled(part))
    return found


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, text in generated():
        files.append(File.generated(config, name, content=text))
    return files


# ---- the pages


def generated() -> Iterator[tuple[str, str]]:
    """Path below docs/ and Markdown, of every page that is made."""
    yield "reference/client.md", client()
    yield "reference/errors.md", errors()
    yield "reference/cli.md", commands()
    yield "rules/stories.md", stories()
    yield from protocol()


CLIENT = {
    "Consumer": "consumer",
    "AsyncConsumer": "consumer",
    "RebalanceListener": "consumer",
    "ConsumerRecord": "consumer",
    "ColumnBatch": "consumer",
    "GroupChange": "consumer",
    "GroupMetadata": "consumer",
    "CommittedOffset": "consumer",
    "OffsetAt": "consumer",
    "Producer": "consumer",
    "AsyncProducer": "consumer",
    "Delivery": "consumer",
    "RecordMetadata": "consumer",
    "Cluster": "consumer",
    "AsyncCluster": "consumer",
    "Group": "consumer",
    "GroupMember": "consumer",
    "ListedGroup": "consumer",
    "ConsumerGroup": "consumer",
    "AsyncConsumerGroup": "consumer",
    "running": "kproto",
    "Server": "kproto.broker.server",
    "Kafka": "kproto.testing.kafka",
    "Columns": "kproto.records.columns",
}
"""What users hold in their hands, and where it is from."""


def client() -> str:
    parts = [
        "# Clients, broker and fixture",
        "`from kproto import Consumer, Producer, ...` has what most people want; `from consumer import ...` "
        "has all of the client. Times are seconds in calls and milliseconds in options; offsets are those of "
        "the next record. What a call may raise is on [Errors](errors.md).",
    ]
    for name, module in CLIENT.items():
        parts.append(_described(name, getattr(importlib.import_module(module), name)))
    return "\n\n".join(parts) + "\n"


def _described(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"## {name}\n\n`{name}{_signature(thing)}`\n\n{_prose(thing)}"
    parts = [f"## {name}\n\n{_prose(thing)}"]
    for method, value in _public(thing):
        if isinstance(value, property) or not callable(value):
            told = inspect.getdoc(value) if isinstance(value, property) else None
            if told:
                parts.append(f"### {name}.{method} {{ #{name.lower()}-{method} }}\n\n{_paragraphs(told)}")
        else:
            wait = "await " if inspect.iscoroutinefunction(value) else ""
            parts.append(
                f"### {name}.{method} {{ #{name.lower()}-{method} }}\n\n"
                f"`{wait}{method}{_signature(value)}`\n\n{_prose(value)}"
            )
    return "\n\n".join(parts)


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties with a docstring, in the order in which they are declared."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in ("kproto", "consumer"):
            continue
        for name in vars(base):
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            value = inspect.getattr_static(cls, name)
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if isinstance(value, property | types.FunctionType) and inspect.getdoc(value):
                yield name, value


def _signature(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    kept = [part for name, part in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=kept)).replace("'", "")


def _prose(thing: Any) -> str:
    return _paragraphs(inspect.getdoc(thing) or "")


def _paragraphs(told: str) -> str:
    """A docstring as Markdown: what is indented in it is a block of text, the rest is as it stands."""
    return re.sub(r"(?m)^(\s*)<", r"\1&lt;", told)


def errors() -> str:
    """Every exception with what it is for, and every code of Kafka's."""
    from kproto import error_codes
    from kproto import errors as module
    from kproto.error_codes import RETRIABLE, ErrorCode
    from kproto.wire.field_docs import class_comments

    tree = (inspect.getdoc(module) or "").partition("\n\n")[2].partition("\n\n")[0]
    rows = []
    said = class_comments(error_codes.__name__)["ErrorCode"]
    for code in ErrorCode:
        again = "yes" if code in RETRIABLE else ""
        rows.append(f"| {int(code)} | `{code.name}` | {again} | {_cell(said.get(code.name, ''))} |")
    classes = [
        f"### {name}\n\n{_prose(cls)}"
        for name, cls in vars(module).items()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
    ]
    return "\n\n".join(
        [
            "# Errors",
            "Everything that kproto raises on purpose is a `KprotoError`. An error says what was given, "
            "where, and what is allowed.",
            f"```text\n{inspect.cleandoc(tree)}\n```",
            "## One by one",
            *classes,
            "## Kafka's error codes",
            'A `BrokerError` has `.code`. "Again" means that the same request may succeed later.',
            "\n".join(["| code | name | again | meaning |", "|---|---|---|---|", *rows]),
        ]
    )


def commands() -> str:
    """What `kproto COMMAND --help` prints, command by command."""
    from kproto import cli

    parser, _ = cli._parser()
    of = next(part for part in parser._actions if isinstance(part, argparse._SubParsersAction))
    parts = [
        "# The command line",
        cli.EXIT_CODES,
    ]
    helps = {action.dest: action.help or "" for action in of._choices_actions}
    for name, command in of.choices.items():
        command.formatter_class = _Wide
        parts.append(f"## kproto {name}\n\n{helps[name]}\n\n```text\n{command.format_help().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


class _Wide(argparse.HelpFormatter):
    """The same on every machine."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=88)


SAID = {
    "S1-11": "sarama-cluster's configuration has no say in how partitions are divided",
    "S2-11": "poll(long) of Java 2.6 waits for the assignment, and its time doesn't run meanwhile",
}
"""What the documents say beside the stories, and the source cites."""


def stories() -> str:
    """The ids of the stories (S1-20) and what each is about."""
    from kproto.scenarios import scenarios

    parts = [
        "# Stories",
        "The names S0-1 to S3-25 are stories about Kafka's clients. `kproto scenario S1-20` plays one in "
        "virtual time and tells what happened and why.",
    ]
    rows = [f"| `{story.id}` | {_cell(story.title)} |" for story in scenarios()]
    rows += [f"| `{name}` | {text} (a fact, no story) |" for name, text in SAID.items()]
    return "\n\n".join([*parts, "\n".join(["| id | story |", "|---|---|", *rows])]) + "\n"


def protocol() -> Iterator[tuple[str, str]]:
    """A page for each API and each other message, and one that lists them."""
    from kproto.inspect import guide

    cited = _cited()
    listing = [
        "# The protocol",
        "What each message of Kafka 4.3 holds, version by version. `kproto show JoinGroup` prints the same.",
    ]
    for title, names in guide.kinds():
        listing.append(f"## {title}")
        listing.append("\n".join(f"- [{name}]({name}.md): {guide.summary(name)}" for name in names))
        for name in names:
            parts = ["---\nhide: [navigation]\n---", f"# {name}"]
            for head, html in guide.fragments(name):
                parts += [f"## {head}", html] if head else [html]
            if rules := cited.get(name):
                links = ", ".join(f"[{rule}](../rules/{page}.md#{rule.lower()})" for rule, page in rules)
                parts += ["## Rules that name it", links]
            yield f"protocol/{name}.md", "\n\n".join(parts) + "\n"
    yield "protocol/index.md", "\n\n".join(listing) + "\n"


def _cited() -> dict[str, list[tuple[str, str]]]:
    """API -> the rules whose text names it, and the page that each is on."""
    found: dict[str, list[tuple[str, str]]] = {}
    for page in RULES:
        for rule, text in rules(page).items():
            for name in set(re.findall(r"\b[A-Z][A-Za-z]+\b", text)):
                found.setdefault(name, []).append((rule, page))
    return found


RULES = ("member", "coordinator", "transactions", "invariants")
"""The pages that define rules."""


def rules(page: str) -> dict[str, str]:
    """Name -> what it says, of the rules that a page below docs/rules/ defines by `### M10`."""
    path = DOCS / "rules" / f"{page}.md"
    parts = re.split(r"(?m)^### ([A-Z]\d+)\n", path.read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
