"""MkDocs hooks that generate pages from the source; the generated pages are not committed.

The pages on the API come from docstrings, the page on the command line from argparse, the pages on the
protocol from the messages, and the page on the scenarios from `kproto.scenarios`. The page on metrics comes
from the table of the consumer's metrics, and from a record of the metrics of Java's clients. The page on the
versions of Kafka comes from a record of the API versions that each release lists. The page on the broker's
configs comes from the classes and the table that declare these configs. `generated()` yields all these pages,
to MkDocs and to the tests.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import types
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent


# ---- MkDocs


def on_config(config: Any) -> Any:
    """Expand `lessons/*` in the navigation to the existing pages."""
    config.nav = _expand(config.nav)
    return config


def _expand(nav: Any) -> Any:
    if isinstance(nav, dict):
        return {title: _expand(part) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    entries: list[Any] = []
    for part in nav:
        if isinstance(part, str) and part.endswith("/*"):
            folder = DOCS / part.removesuffix("/*")
            entries += [path.relative_to(DOCS).as_posix() for path in sorted(folder.glob("*.md"), key=_order)]
        else:
            entries.append(_expand(part))
    return entries


def _order(path: Path) -> tuple[bool, str]:
    return path.name != "README.md", path.name


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name, text in generated():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Insert the tables of options into the page of the client options. MkDocs calls this for each page."""
    return with_option_tables(markdown) if page.file.src_uri == "reference/client-options.md" else markdown


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Label each table cell with its column title, which extra.css shows on phones. A hook of MkDocs."""
    return re.sub(r"(?s)<table>.*?</table>", _with_labels, html)


def _with_labels(table: re.Match[str]) -> str:
    titles = [re.sub("<.*?>", "", title) for title in re.findall(r"(?s)<th\b[^>]*>(.*?)</th>", table[0])]

    def labelled(row: re.Match[str]) -> str:
        labels = iter(titles)
        return re.sub("<td", lambda _: f'<td data-label="{next(labels, "")}"', row[0])

    return re.sub(r"(?s)<tr\b.*?</tr>", labelled, table[0])


def with_option_tables(markdown: str) -> str:
    """Replace `<!-- options: CHAPTER / SECTION -->` with the table of this section's client options."""
    from consumer.option_docs import option_tables

    def table(match: re.Match[str]) -> str:
        chapter, _, section = match[1].partition(" / ")
        return dict(option_tables(chapter))[section]

    return re.sub(r"(?m)^<!-- options: (.+) -->$", table, markdown)


# ---- the pages


def generated() -> Iterator[tuple[str, str]]:
    """For every generated page, yield its path below docs/ and its Markdown."""
    yield from clients()
    yield "reference/other-names.md", other_names()
    yield "reference/admin.md", admin_methods()
    yield "reference/metrics.md", metrics()
    yield "reference/broker-configs.md", broker_configs()
    yield "reference/errors.md", errors()
    yield "reference/cli.md", commands()
    yield "reference/state-machines.md", state_machines()
    yield "reference/kafka-versions.md", kafka_versions()
    yield "rules/scenarios.md", scenario_ids()
    yield "rules/tests.md", rule_index()
    yield from protocol()


# The pages on the Python API: their titles, and the public names with the modules that export them.
CLIENT = {
    "reference/consumer.md": (
        "Consumer",
        {
            "Consumer": "consumer",
            "RebalanceListener": "consumer",
            "ConsumerRecord": "consumer",
            "ColumnBatch": "consumer",
            "Columns": "kproto.records.columns",
            "GroupChange": "consumer",
            "GroupMetadata": "consumer",
            "CommittedOffset": "consumer",
            "OffsetAt": "consumer",
            "Metrics": "consumer",
            "ApplicationMetric": "consumer",
            "Metric": "consumer",
        },
    ),
    "reference/async-consumer.md": (
        "AsyncConsumer",
        {
            "AsyncConsumer": "consumer",
        },
    ),
    "reference/producer.md": (
        "Producer",
        {
            "Producer": "consumer",
            "AsyncProducer": "consumer",
            "Delivery": "consumer",
            "DeliveryStatus": "consumer",
            "RecordMetadata": "consumer",
        },
    ),
    "reference/consumer-group.md": (
        "ConsumerGroup, sarama's API",
        {
            "ConsumerGroup": "consumer",
            "AsyncConsumerGroup": "consumer",
        },
    ),
    "reference/admin-client.md": (
        "Admin",
        {
            "Admin": "consumer",
            "AsyncAdmin": "consumer",
            "ConfigResource": "consumer",
            "ConfigEntry": "consumer",
            "ConfigSynonym": "consumer",
            "AlterConfigOp": "consumer",
            "TopicDescription": "consumer",
            "TopicListing": "consumer",
            "TopicPartitionInfo": "consumer",
            "ClusterDescription": "consumer",
            "ClusterNode": "consumer",
            "DelegationToken": "consumer",
            "FeatureMetadata": "consumer",
            "FeatureUpdate": "consumer",
            "FeatureVersionRange": "consumer",
            "GroupDescription": "consumer",
            "StreamsTasks": "consumer",
            "StreamsSubtopology": "consumer",
            "SharePartitionOffset": "consumer",
            "QuorumInfo": "consumer",
            "QuorumReplicaState": "consumer",
            "RaftVoterEndpoint": "consumer",
            "ClientQuotaEntity": "consumer",
            "ReplicaLogDirInfo": "consumer",
            "AclBinding": "consumer",
            "AclBindingFilter": "consumer",
            "ScramCredentialInfo": "consumer",
            "UserScramCredentialDeletion": "consumer",
            "UserScramCredentialUpsertion": "consumer",
            "ProducerState": "consumer",
            "TransactionDescription": "consumer",
            "TransactionListing": "consumer",
            "LogDirDescription": "consumer",
            "PartitionReassignment": "consumer",
            "ReplicaInfo": "consumer",
            "TopicPartitionReplica": "consumer",
            "Group": "consumer",
            "GroupMember": "consumer",
            "ListedGroup": "consumer",
        },
    ),
    "reference/embedded-broker.md": (
        "Embedded broker and fixture",
        {
            "running": "kproto",
            "Server": "kproto.broker.server",
            "Kafka": "kproto.testing.kafka",
        },
    ),
}


def clients() -> Iterator[tuple[str, str]]:
    """Yield the pages on the clients, the broker and the fixture."""
    for path, (title, names) in CLIENT.items():
        parts = [
            f"# {title}",
            "`from kproto import Consumer, Producer, ...` exports the common names, and "
            "`from consumer import ...` all names of the clients. Times are in seconds in calls, and in "
            "milliseconds in options. An offset is that of the next record. [Errors](errors.md) lists the "
            "exceptions.",
        ]
        for name, module in names.items():
            parts.append(_describe(name, getattr(importlib.import_module(module), name)))
        yield path, "\n\n".join(parts) + "\n"


def _describe(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"## {name}\n\n`{name}{_signature(thing)}`\n\n{_prose(thing)}"
    # The docstrings of the clients end with a list of options, which has a page of its own and is left out
    # here.
    prose, *options = re.split("(?m)^(?:Options and their defaults|For TLS and SASL):$", _prose(thing))
    if options:
        prose += "[Options of the clients](client-options.md) lists the options."
    parts = [f"## {name}\n\n{prose}"]
    for method, value in _public(thing):
        if isinstance(value, property) or not callable(value):
            text = inspect.getdoc(value) if isinstance(value, property) else None
            if text:
                parts.append(f"### {name}.{method} {{ #{name.lower()}-{method} }}\n\n{_paragraphs(text)}")
        else:
            wait = "await " if inspect.iscoroutinefunction(value) else ""
            parts.append(
                f"### {name}.{method} {{ #{name.lower()}-{method} }}\n\n"
                f"`{wait}{method}{_signature(value)}`\n\n{_prose(value)}"
            )
    return "\n\n".join(parts)


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented methods and properties of a class, in the order of their declaration."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in ("kproto", "consumer"):
            continue
        for name in vars(base):
            if name.startswith("_") or name in names:
                continue
            names.add(name)
            value = inspect.getattr_static(cls, name)
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if isinstance(value, property | types.FunctionType) and inspect.getdoc(value):
                yield name, value


def _signature(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    # The parameter `**unknown: Never` is omitted, because no call may pass an argument for it. It exists to
    # raise a helpful error for argument names of other libraries.
    parameters = [
        part for name, part in signature.parameters.items() if name != "self" and part.annotation != "Never"
    ]
    return str(signature.replace(parameters=parameters)).replace("'", "")


def _prose(thing: Any) -> str:
    return _paragraphs(inspect.getdoc(thing) or "")


def _paragraphs(docstring: str) -> str:
    """Return a docstring as Markdown.

    A list or an indented block gets a blank line before it: otherwise Markdown would continue the paragraph.
    A `<` at the start of a line is escaped.
    """
    lines: list[str] = []
    for line in docstring.splitlines():
        previous = lines[-1] if lines else ""
        if previous.strip() and (_starts_list(line, previous) or _starts_block(line, previous)):
            lines.append("")
        lines.append(re.sub(r"^(\s*)<", r"\1&lt;", line))
    return "\n".join(lines)


_ITEM = re.compile(r"\s*(?:[*-]|\d+\.) ")


def _starts_list(line: str, previous: str) -> bool:
    """Return whether a list begins at `line`, after a line that belongs to no list."""
    return bool(_ITEM.match(line)) and not _ITEM.match(previous) and not previous.startswith(" ")


def _starts_block(line: str, previous: str) -> bool:
    """Return whether an indented block, other than the continuation of a list, begins at `line`."""
    return line.startswith("    ") and not previous.startswith(" ") and not _ITEM.match(previous)


def _values_of(row: Any) -> str:
    """Return the type and the allowed values of a broker config, such as "int, at least 1"."""
    from kproto.broker.config_values import ConfigType, Integer

    metadata = row.metadata
    value_type = metadata.get("type") or Integer(metadata.get("bits", 32), metadata.get("minimum"))
    name = value_type.config_type.name.lower()
    if not isinstance(value_type, Integer):
        allowed = value_type.fault("?")
        if value_type.config_type is ConfigType.UNKNOWN:  # The type of the authorizer's configs.
            return str(allowed)
        return f"{name}: {allowed}" if allowed and name != "boolean" else name
    bounds = {"at least": value_type.minimum, "at most": value_type.maximum}
    texts = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
    allowed = value_type.allowed or " and ".join(texts)
    return f"{name}, {allowed}" if allowed else name


def broker_configs() -> str:
    """Return the page of the embedded broker's configs, with the comments on their fields as meanings."""
    from kproto.broker.settings import SETTINGS, Settings, kafka_name
    from kproto.broker.topic_configs import TOPIC_CONFIGS
    from kproto.group.settings import GroupSettings
    from kproto.transactions.settings import TransactionSettings
    from kproto.wire.field_docs import class_comments

    parts = [
        "# Configs of the embedded broker",
        '`running(settings={"log.retention.ms": 60_000})` sets configs of the broker by Kafka\'s names, and '
        "rejects other names than those of this page. A meaning may also describe the configs below it.",
    ]
    tables = {"Broker": Settings, "Groups": GroupSettings, "Transactions": TransactionSettings}
    for title, table in tables.items():
        comments = class_comments(table.__module__)[table.__name__]
        rows = [_row("config", "values", "default", "dynamic", "meaning"), "|---|---|---|---|---|"]
        for field in fields(table):
            name = kafka_name(field.name)
            if title != "Broker" or name in SETTINGS:
                dynamic = "yes" if name in SETTINGS and SETTINGS[name].dynamic else ""
                default = "" if field.default is None else str(field.default)
                default = default.lower() if isinstance(field.default, bool) else _cell(default)
                meaning = _cell(comments.get(field.name, ""))
                rows.append(_row(f"`{name}`", _cell(_values_of(field)), default, dynamic, meaning))
        parts += [f"## {title}", "\n".join(rows)]
    rows = [_row("config", "default", "has an effect"), "|---|---|---|"]
    rows += [
        _row(f"`{name}`", _cell(config.default), "yes" if config.acts else "")
        for name, config in TOPIC_CONFIGS.items()
    ]
    return "\n\n".join([*parts, "## Topics", "\n".join(rows)]) + "\n"


def errors() -> str:
    """Return the page of all exceptions and of Kafka's error codes."""
    from kproto import error_codes
    from kproto import errors as module
    from kproto.error_codes import RETRIABLE, ErrorCode
    from kproto.wire.field_docs import class_comments

    tree = (inspect.getdoc(module) or "").partition("\n\n")[2].partition("\n\n")[0]
    rows = []
    comments = class_comments(error_codes.__name__)["ErrorCode"]
    for code in ErrorCode:
        retriable = "yes" if code in RETRIABLE else ""
        rows.append(f"| {int(code)} | `{code.name}` | {retriable} | {_cell(comments.get(code.name, ''))} |")
    classes = [
        f"### {name}\n\n{_prose(cls)}"
        for name, cls in vars(module).items()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
    ]
    return "\n\n".join(
        [
            "# Errors",
            "All exceptions of kproto are subclasses of `KprotoError`. A message contains the invalid value, "
            "where it was given, and what is allowed.",
            f"```text\n{inspect.cleandoc(tree)}\n```",
            "## Exceptions",
            *classes,
            "## Kafka's error codes",
            "`BrokerError.code` is one of these codes. A retriable request may succeed later.",
            "\n".join(["| code | name | retriable | meaning |", "|---|---|---|---|", *rows]),
        ]
    )


def metrics() -> str:
    """Return the page that lists the clients' metrics, and compares them with Java's metrics.

    docs/java-metrics.json lists Java's metrics; tests/conformance/test_metrics_like_java.py compares it with
    Java's clients. The file also has the reasons why kproto measures some metrics differently or not at all.
    A reason applies to all metrics whose names begin with its key.
    """
    from consumer.engine.consumer_metrics import CONSUMER_METRICS
    from consumer.engine.producer.sensors import PRODUCER_METRICS

    recorded = json.loads((DOCS / "java-metrics.json").read_text())
    parts = [
        "# Metrics",
        "`metrics()` of a consumer or producer returns what it has measured until the call, with the names, "
        "groups and tags of Kafka's Java clients. Every metric has the tag `client-id`. The tag `node-id` is "
        "`node-1` for the broker with the id 1, and `node--1` for the first bootstrap address, if the "
        "metadata does not list it. `metrics()` of an admin client returns the metrics of its connections, "
        "in the groups `admin-client-metrics` and `admin-client-node-metrics`.",
        "```python\nfor metric in consumer.metrics():\n"
        "    print(metric.group, metric.name, metric.tags, metric.value, metric.unit)\n\n"
        'consumer.metrics().value("records-lag-max")\n'
        'consumer.metrics().value("records-lag", topic="flights", partition=0)\n'
        'consumer.metrics().value("request-latency-avg", node_id="node-1")\n```',
        "A value is None as long as there is nothing to measure; Java has NaN or -1 then. Averages, maxima, "
        "minima and rates are those of the last 30 to 60 s: two samples of 30 s, as in Java "
        "(`metrics.sample.window.ms`, `metrics.num.samples`). Totals are those since the client was created.",
    ]
    for client, table in (("consumer", CONSUMER_METRICS), ("producer", PRODUCER_METRICS)):
        groups: dict[str, list[str]] = {}
        for metric in table:
            row = _row(
                f"`{metric.name}`",
                ", ".join(metric.tags),
                metric.measure.value,
                metric.unit,
                _cell(metric.description),
            )
            groups.setdefault(f"{client}-{metric.group}", []).append(row)
        head = ["| metric | tags | value | unit | of |", "|---|---|---|---|---|"]
        parts += [f"## {group}\n\n" + "\n".join([*head, *rows]) for group, rows in groups.items()]
        own = {(f"{client}-{metric.group}", metric.name, *metric.tags) for metric in table}
        rows = [
            _row(
                f"`{group}`",
                f"`{name}`",
                ", ".join(tags),
                _compared(recorded, client, name, (group, name, *tags) in own),
            )
            for group, name, *tags in recorded[client]
        ]
        parts += [
            f"## Compared with Java's {client}",
            f"These are all metrics of the {client} of Kafka {recorded['kafka']}.",
            "\n".join(["| group | metric | tags | here |", "|---|---|---|---|", *rows]),
        ]
    parts.append(
        "Java's consumer also has each metric of a topic with a tag `topic` in which `_` replaces each dot, "
        "and deprecates it. It has the tag `node-+1` for the connection to the group's coordinator, which "
        "here is one of the connections to its broker."
    )
    return "\n\n".join(parts) + "\n"


def admin_methods() -> str:
    """Return the page that compares the methods of `Admin` with the methods of Java's Admin.

    docs/java-admin.json lists Java's methods, and says which of them have another name or another behaviour
    in kproto, or are missing. tests/conformance/test_admin_on_kafka.py compares the list with Java's class,
    and calls every method on Kafka and on the embedded broker.
    """
    from consumer import Admin

    recorded = json.loads((DOCS / "java-admin.json").read_text())
    own = {name for name in vars(Admin) if not name.startswith("_")}
    rows: list[str] = []
    listed: set[str] = set()
    for java in recorded["methods"]:
        name = re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", java)
        note = recorded["notes"].get(java, "")
        if java in recorded["other_names"]:
            name, note = recorded["other_names"][java]
        elif name not in own:
            name, note = "", recorded["missing"][java]
        listed.add(name)
        embedded = "no" if not name or name in recorded["not_embedded"] else "yes"
        rows.append(_row(f"`{java}`", f"`{name}`" if name else "no", embedded, note))
    others = ", ".join(f"`{name}`" for name in sorted(own - listed))
    parts = [
        "# Methods of Admin",
        "`Admin` and `AsyncAdmin` have the methods of Java's Admin, with the same names in snake_case. A "
        "method about several items returns a dict, and raises `PartialFailure` if an item has failed: "
        "`succeeded` has the results of the other items, and `failed` the errors.",
        f"These are all methods of Java's Admin in Kafka {recorded['kafka']}. The embedded broker serves "
        "most of them, and rejects the others with `UnsupportedVersion`.",
        "\n".join(["| Java | here | embedded broker | note |", "|---|---|---|---|", *rows]),
        f"`Admin` also has {others}. `commit_offsets` and `committed_offsets` are about one group, and raise "
        "its first error. `group` returns the members, offsets and lag of one group of any type.",
    ]
    return "\n\n".join(parts) + "\n"


def _compared(recorded: dict[str, Any], client: str, name: str, is_measured: bool) -> str:
    """Describe how kproto measures a metric of Java's clients, or why it does not measure it."""
    reasons = recorded["measured_differently"][client] if is_measured else recorded["not_measured"]
    reason = next((reason for start, reason in reasons.items() if name.startswith(start)), "")
    return f"{'same' if is_measured else 'no'}{': ' if reason else ''}{reason}"


def other_names() -> str:
    """Return the page that lists options and methods of other libraries, with their equivalents in kproto."""
    from consumer.other_clients import METHODS
    from consumer.other_options import OPTIONS
    from consumer.security.option_names import SPELLINGS

    kinds = ("a consumer", "a producer", "an admin client")
    names = sorted({name for kind in kinds for name in OPTIONS[kind]} | set(SPELLINGS))
    rows: list[str] = []
    for name in names:
        answers: dict[str, list[str]] = {}
        for kind in kinds:
            answer = OPTIONS[kind].get(name) or (f"use {SPELLINGS[name]}" if name in SPELLINGS else None)
            if answer is not None:
                answers.setdefault(answer, []).append(kind.partition(" ")[2])
        for answer, of in answers.items():
            whose = "" if len(of) == len(kinds) else f" ({', '.join(of)})"
            rows.append(f"| `{name}`{whose} | {answer} |")
    methods = [
        f"| `{name}` | {kind} | {answer} |"
        for kind, table in METHODS.items()
        for name, answer in sorted(table.items())
    ]
    return "\n".join(
        [
            "# Names of other libraries",
            "",
            "Options and methods of kafka-python, aiokafka, confluent-kafka (librdkafka), Java and Spark",
            "that kproto does not have, and what to use instead. kproto's errors give the same answers.",
            "Names with dots or capital letters are written in snake_case: `fetch.wait.max.ms` is",
            "`fetch_wait_max_ms`. A name that is not listed here is the same in kproto, or these",
            "libraries do not have it. A test compares the lists with the installed libraries.",
            "",
            "## Options",
            "",
            "| option | answer |",
            "|---|---|",
            *rows,
            "",
            "## Methods",
            "",
            "| method | of | answer |",
            "|---|---|---|",
            *methods,
            "",
        ]
    )


def commands() -> str:
    """Return the page with the output of `kproto COMMAND --help` for each command."""
    from kproto import cli

    parser, _ = cli.build_parser()
    subparsers = next(part for part in parser._actions if isinstance(part, argparse._SubParsersAction))
    parts = [
        "# The command line",
        cli.EXIT_CODES,
    ]
    helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
    for name, command in subparsers.choices.items():
        texts = [_help_text(parser) for parser in (command, *_verbs(command))]
        parts.append("\n\n".join([f"## kproto {name}", helps[name], *texts]))
    return "\n\n".join(parts) + "\n"


def _help_text(command: argparse.ArgumentParser) -> str:
    command.formatter_class = _Wide
    return f"```text\n{command.format_help().rstrip()}\n```"


def _verbs(command: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of a command's verbs, such as `list` of `kproto topics`, if it has verbs."""
    parsers = [part for part in command._actions if isinstance(part, argparse._SubParsersAction)]
    return list(parsers[0].choices.values()) if parsers else []


class _Wide(argparse.HelpFormatter):
    """Format the help for a fixed width, so that the pages do not depend on the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=88)


def scenario_ids() -> str:
    """Return the page that lists the ids of the scenarios, such as S1-20, with their titles."""
    from kproto.scenarios import scenarios
    from kproto.scenarios.parameters import PARAMETERS

    listed = scenarios()
    parts = [
        "# Scenarios",
        f"{listed[0].id} to {listed[-1].id} are scenarios about Kafka's clients. `kproto scenario S1-20` "
        "plays one in virtual time, and prints its events and the reason for its result.",
        "A scenario takes the parameters in its row, and `--seed`. A scenario without parameters has the "
        "reason.",
    ]
    rows = [
        f"| `{scenario.id}` | {_cell(scenario.title)} | "
        + (" ".join(f"`{PARAMETERS[name].option}`" for name in scenario.takes) or f"none: {scenario.fixed}")
        + " |"
        for scenario in listed
    ]
    table = ["| id | scenario | parameters |", "|---|---|---|", *rows]
    return "\n\n".join([*parts, "\n".join(table)]) + "\n"


def protocol() -> Iterator[tuple[str, str]]:
    """Yield a page for each API and for each message that belongs to no API, and a page that lists them."""
    from kproto.inspect import guide
    from kproto.messages.index import KAFKA_RELEASE
    from kproto.messages.index import names as message_names

    cited = _cited()
    listing = [
        "# The protocol",
        f"The fields of the {len(message_names())} messages of Kafka {KAFKA_RELEASE} by version, with the "
        "records of Kafka's own topics. `kproto show JoinGroup` prints the same.",
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
                parts += ["## Rules that mention it", links]
            yield f"protocol/{name}.md", "\n\n".join(parts) + "\n"
    yield "protocol/index.md", "\n\n".join(listing) + "\n"


def _cited() -> dict[str, list[tuple[str, str]]]:
    """Return, for each API, the rules whose text mentions it, and the page of each rule."""
    from kproto.inspect import rules

    mentions: dict[str, list[tuple[str, str]]] = {}
    for page in rules.PAGES:
        for rule, text in rules.definitions_of(page).items():
            for name in set(re.findall(r"\b[A-Z][A-Za-z]+\b", text)):
                mentions.setdefault(name, []).append((rule, page))
    return mentions


def state_machines() -> str:
    """Return the page with the pictures and tables of the state machines."""
    from kproto.cli.machines import MACHINES, drawing_of
    from kproto.inspect.machines import picture, text
    from kproto.inspect.notebook import image

    parts = [
        "# State machines\n",
        "These pictures and texts are drawn from the tables and edges that the machines run by. "
        "`kproto show coordinator` prints the same text, and `--svg FILE` draws the picture.\n",
    ]
    for name in MACHINES:
        drawing = drawing_of(name)
        # The drawing is embedded as an image: the styles of inline SVG would apply to the whole page.
        parts += [
            f"## {name.capitalize()}\n",
            image(picture(name, drawing), f"states and transitions of {name}"),
            f'\n??? abstract "{name.capitalize()} as text"\n',
            indent(f"```text\n{text(name, drawing).rstrip()}\n```\n", "    "),
        ]
    return "\n".join(parts)


class Feature(NamedTuple):
    """A feature that needs `version` of `api`; `without` describes what happens with older brokers."""

    name: str
    api: str
    version: int
    without: str


FEATURES = (
    Feature(
        "static members",
        "JoinGroup",
        5,
        "`UnsupportedVersion` names `group_instance_id`.",
    ),
    Feature(
        "detection of truncated logs (KIP-320)",
        "OffsetForLeaderEpoch",
        3,
        "Positions are not validated. After an unclean leader election, records may be skipped or repeated.",
    ),
    Feature(
        "reads from the nearest replica (`client_rack`)",
        "Fetch",
        11,
        "The option has no effect: the consumer reads from the leader.",
    ),
    Feature(
        "fencing of replaced group members by `send_offsets` (KIP-447)",
        "TxnOffsetCommit",
        3,
        "`commit` raises `UnsupportedVersion` if `send_offsets` got `group_metadata()`. The group's name is "
        "accepted ([exactly once](../how-to/exactly-once.md)).",
    ),
    Feature(
        "committed offsets that wait for pending transactions",
        "OffsetFetch",
        7,
        "`committed()` may return the previous offset while a transaction is being completed.",
    ),
    Feature(
        "a new epoch for a transactional producer (KIP-360)",
        "InitProducerId",
        3,
        "`abort()` waits until every batch that was sent has a response. A batch without a result ends the "
        "producer.",
    ),
    Feature(
        "states of listed groups",
        "ListGroups",
        4,
        "`ListedGroup.state` is None.",
    ),
    Feature(
        "topic ids (KIP-516)",
        "Metadata",
        10,
        "A re-created topic is recognized only if the client has seen that the topic was missing.",
    ),
    Feature(
        "`max_timestamp`",
        "ListOffsets",
        7,
        "`UnsupportedVersion`",
    ),
    Feature(
        "Fetch with topic ids",
        "Fetch",
        13,
        "A fetch does not recognize a re-created topic; the next metadata does (`metadata_max_age_ms`).",
    ),
    Feature(
        "reasons to join and to leave (KIP-800)",
        "JoinGroup",
        8,
        "The broker's log does not contain the reasons.",
    ),
    Feature(
        "`earliest_local`",
        "ListOffsets",
        8,
        "`UnsupportedVersion`",
    ),
    Feature(
        "`latest_tiered`",
        "ListOffsets",
        9,
        "`UnsupportedVersion`",
    ),
    Feature(
        "a new epoch for each transaction (KIP-890)",
        "EndTxn",
        5,
        "The producer keeps its epoch, and adds each partition to the transaction with AddPartitionsToTxn.",
    ),
    Feature(
        "Produce with topic ids",
        "Produce",
        13,
        "Records for a deleted topic may be written to a re-created topic of this name.",
    ),
    Feature(
        "OffsetCommit with topic ids",
        "OffsetCommit",
        10,
        "Before each commit, the client asks the coordinator for the topic ids: one more round trip.",
    ),
)
"""The features that depend on the broker's release, in the order in which Kafka added them."""


def kafka_versions() -> str:
    """Return the page that lists the tested releases of Kafka, and what each of them lacks.

    tests/conformance/test_old_kafkas.py compares docs/kafka-versions.json with the API versions that brokers
    of these releases list.
    """
    from kproto.broker.apis.table import APIS, served_versions
    from kproto.messages.index import API_NAMES

    recorded = json.loads((DOCS / "kafka-versions.json").read_text())
    titles = [version.rpartition(".")[0] for version in recorded]
    keys = {name: str(key) for key, name in API_NAMES.items()}
    features = [_row("feature", "API and version", *titles, "without it"), "|---" * (len(titles) + 3) + "|"]
    for name, api, version, without in FEATURES:
        known = (listed.get(keys[api], (0, -1))[1] >= version for listed in recorded.values())
        features.append(_row(name, f"{api} {version}", *("yes" if k else "-" for k in known), without))
    versions = [_row("API", "kproto", *titles), "|---" * (len(titles) + 2) + "|"]
    for key, own in served_versions().items():
        pairs = (listed.get(str(key)) for listed in recorded.values())
        listed_by = ("{} to {}".format(*pair) if pair else "-" for pair in pairs)
        link = f"[{APIS[key].name}](../protocol/{APIS[key].name}.md)"
        versions.append(_row(link, f"{own.min_version} to {own.max_version}", *listed_by))
    parts = [
        "# Versions of Kafka",
        "The clients and the Spark source support brokers of Kafka 2.1 and later, as Java's clients do since "
        f"Kafka 4.0 (KIP-896). The judges run them on real brokers of Kafka {', '.join(recorded)}, and most "
        "judges use Kafka 4.3. For each request, a client uses the highest version that both sides know.",
        '`running(highest={"OffsetCommit": 8, ...})` limits the embedded broker to the versions of an older '
        "release, and -1 leaves an API out. The same tests run on this broker.",
        "## What older releases lack",
        "If a request needs a version that the broker does not have, the call raises `UnsupportedVersion`.",
        "\n".join(features),
        "## Versions of each API",
        "The second column has the versions of the embedded broker. The other columns have those in the "
        "response of each release to ApiVersions.",
        "\n".join(versions),
    ]
    return "\n\n".join(parts) + "\n"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def rule_index() -> str:
    """Return the page that lists each rule's tests and its cells in the tables of the state machines."""
    from kproto.inspect import rules

    lines = [
        "---\nhide: [toc]\n---\n",
        "# Cells and tests of rules\n",
        "The cells of the [state machines](../reference/state-machines.md) that keep a rule, "
        "and the tests that check it. A rule without a cell is kept by a function whose docstring names it. "
        "`kproto rules R64` prints the same, with the source of the tests.\n",
        "| rule | cells | tests |",
        "|---|---|---|",
    ]
    for page in rules.PAGES:
        for number in rules.definitions_of(page):
            kinds: dict[str, list[str]] = {}
            for cell in rules.cells().get(number, ()):
                kinds.setdefault(f"{cell.machine}: {cell.kind}", []).append(cell.state)
            kept = "<br>".join(f"{kind} in {', '.join(states)}" for kind, states in kinds.items())
            pinned = "<br>".join(
                f"`{test.path}::{test.name}`{{ .path }}" for test in rules.tests().get(number, ())
            )
            lines.append(f"| [{number}]({page}.md#{number.lower()}) | {kept} | {pinned} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
