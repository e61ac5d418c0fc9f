"""Omissions that raise no error: configs that no code reads, and modules that no table registers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec
import pytest

from consumer.consumer_options import CONSUMER
from consumer.option_checks import Option
from consumer.option_docs import CHAPTERS, OptionLists
from consumer.producer_options import PRODUCER
from kproto import cli
from kproto.broker.apis import table
from kproto.broker.settings import SETTINGS, kafka_name
from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.group.assignors import ASSIGNORS

ROOT = Path(__file__).resolve().parents[1]


def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


# Matches docstrings, comments and strings. (Python's parser would take seconds for all modules.) Group 1 is
# the content of a string in double quotes, as ruff formats it.
STRING_OR_COMMENT = re.compile(
    r'"""(?:[^"\\]|\\.|""?(?!"))*"""|\#[^\n]*|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)*\'', re.S
)
IMPORT = re.compile(r"(?m)^[ \t]*(?:from [\w.]+ )?import (?:\([^)]*\)|[^\n]*)")
ATTRIBUTE = re.compile(r"\.([A-Za-z_]\w*)")


class Names(NamedTuple):
    """The attribute names and string literals of a source. Attributes inside f-strings are not included."""

    attributes: frozenset[str]
    strings: frozenset[str]


def names_in(source: str) -> Names:
    code = IMPORT.sub("", STRING_OR_COMMENT.sub("", source))
    return Names(frozenset(ATTRIBUTE.findall(code)), frozenset(STRING_OR_COMMENT.findall(source)))


def test_attributes_and_strings_of_a_source_are_found() -> None:
    source = '''"""A docstring names x.docstring."""
from kproto.imported import name
x.attribute = f(y.other) if options["string"] else 'say "x.y"'  # A comment on x.comment.
'''
    assert names_in(source) == ({"attribute", "other"}, {"string", ""})


# -- modules of a folder


class Registry(NamedTuple):
    """A folder whose modules are registered in one table."""

    folder: str
    # The name that every registered module defines. The other modules of the folder are helpers.
    marker: str
    table: str
    registered: Callable[[], Collection[str]]


REGISTRIES = (
    Registry(
        "kproto/cli",
        "add",
        "_COMMANDS in kproto/cli/__init__.py",
        lambda: {command.__name__ for command in cli._COMMANDS},
    ),
    Registry(
        "kproto/group/assignors",
        "assign",
        "ASSIGNORS in kproto/group/assignors/__init__.py",
        lambda: {assignor.assign.__module__ for assignor in ASSIGNORS.values()},
    ),
    Registry(
        "kproto/broker/apis",
        "API",
        "_MODULES in kproto/broker/apis/table.py",
        lambda: {module.__name__ for module in table._MODULES},
    ),
)


def defines(path: Path, name: str) -> bool:
    """Return whether a module defines a function or a variable of this name."""
    return re.search(rf"(?m)^(?:def {name}\(|{name} ?[:=])", path.read_text()) is not None


def entries(registry: Registry) -> Iterator[Path]:
    """Yield the folder's modules that define the marker."""
    for path in sorted((ROOT / registry.folder).glob("*.py")):
        if path.name != "__init__.py" and defines(path, registry.marker):
            yield path.relative_to(ROOT)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.folder)
def test_the_modules_of_a_folder_and_its_table_are_the_same(registry: Registry) -> None:
    """The registered modules are exactly those modules of the folder that define the marker."""
    names = {".".join(path.with_suffix("").parts) for path in entries(registry)}
    assert names == {*registry.registered()}, f"modules that define {registry.marker!r}, and {registry.table}"


# -- configs of the broker

SETTINGS_CLASSES = {
    "Settings": "kproto/broker/settings.py",
    "GroupSettings": "kproto/group/settings.py",
    "TransactionSettings": "kproto/transactions/settings.py",
}
TOPIC_CONFIGS_FILE = "kproto/broker/topic_configs.py"
READERS = ("broker", "group", "transactions", "cli")


@cache
def names_read() -> frozenset[str]:
    """Return all attribute names and string constants in the modules that may read settings."""
    return frozenset().union(
        *(
            names
            for folder in READERS
            for path in (ROOT / "kproto" / folder).rglob("*.py")
            if path.relative_to(ROOT).as_posix() not in (*SETTINGS_CLASSES.values(), TOPIC_CONFIGS_FILE)
            for names in names_in(path.read_text())
        )
    )


@cache
def settings_class(name: str) -> ast.ClassDef:
    body = parsed(SETTINGS_CLASSES[name]).body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def fields_of(name: str) -> list[str]:
    annotated = (node for node in settings_class(name).body if isinstance(node, ast.AnnAssign))
    return [node.target.id for node in annotated if isinstance(node.target, ast.Name)]


@cache
def read_by_methods(name: str) -> set[str]:
    """Return the attributes of a settings class that its methods read; ignore unused methods.

    A method counts as used if another module or a used method reads its name.
    """
    methods = [node for node in settings_class(name).body if isinstance(node, ast.FunctionDef)]
    read: set[str] = set()
    # A method is defined above its callers, so the loop, in reverse order, visits the callers first.
    for method in reversed(methods):
        if method.name in names_read() | read:
            read |= {
                node.attr
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
            }
    return read


def is_read(class_name: str, field: str) -> bool:
    """Return whether any code reads a config, or the topic config whose default is this config."""
    setting = SETTINGS.get(kafka_name(field))
    if setting is not None and setting.topic_config is not None:
        return TOPIC_CONFIGS[setting.topic_config].acts
    return bool({field, kafka_name(field)} & (names_read() | read_by_methods(class_name)))


@pytest.mark.parametrize("class_name", SETTINGS_CLASSES)
def test_every_broker_config_is_read(class_name: str) -> None:
    unread = [kafka_name(field) for field in fields_of(class_name) if not is_read(class_name, field)]
    assert unread == [], f"configs of {SETTINGS_CLASSES[class_name]} without an effect: no code reads them"


def test_exactly_the_topic_configs_that_act_are_read() -> None:
    """A topic config has acts=True exactly when code reads it. DescribeConfigs documents a config with
    acts=False as without effect.
    """
    acting = {name for name, config in TOPIC_CONFIGS.items() if config.acts}
    assert acting == TOPIC_CONFIGS.keys() & names_read(), f"configs with acts=True in {TOPIC_CONFIGS_FILE}"


def test_a_config_without_a_reader_is_found() -> None:
    assert not is_read("Settings", "config_that_no_code_reads")


# -- configs that can be changed while the broker runs

DYNAMIC_FIELDS = frozenset(setting.field for setting in SETTINGS.values() if setting.dynamic)
# A change replaces the settings of each `Broker`, and `DynamicConfig.settings` returns the current ones.
CURRENT = re.compile(r"\b_?broker\.settings|dynamic\.settings\(.*\)")


def stale_reads(source: str) -> Iterator[str]:
    """Yield each read of a dynamic config that would miss a later change of the config.

    A read misses later changes if it is in a constructor, or if it uses the settings with which the broker
    started.
    """
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        current = {
            ast.unparse(target)
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and CURRENT.search(ast.unparse(node.value))
            for target in node.targets
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in DYNAMIC_FIELDS:
                owner = ast.unparse(node.value)
                is_current = owner in current or CURRENT.search(owner)
                if function.name == "__init__" or not is_current:
                    yield f"{ast.unparse(node)} in {function.name}"


def test_dynamic_configs_are_not_read_from_the_settings_of_the_start() -> None:
    assert {
        path.relative_to(ROOT).as_posix(): stale
        for path in (ROOT / "kproto" / "broker").rglob("*.py")
        if path.name != "settings.py" and DYNAMIC_FIELDS & names_in(source := path.read_text()).attributes
        if (stale := [*stale_reads(source)])
    } == {}, "a change has no effect here: read broker.settings, or dynamic.settings(node), at each use"


def test_a_stale_read_of_a_dynamic_config_is_found() -> None:
    source = """
class Broker:
    def __init__(self, broker, settings):
        self.given = settings.message_max_bytes
        self.kept = broker.settings.message_max_bytes
    def use(self, broker, dynamic):
        settings = dynamic.settings(1)
        fresh = settings.message_max_bytes + broker.settings.message_max_bytes
        return fresh + self._settings.message_max_bytes + dynamic.start.message_max_bytes
"""
    assert {*stale_reads(source)} == {
        "settings.message_max_bytes in __init__",
        "broker.settings.message_max_bytes in __init__",
        "self._settings.message_max_bytes in use",
        "dynamic.start.message_max_bytes in use",
    }


# -- options of the clients


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_option_is_in_all_lists(chapter: str) -> None:
    """Each option is in all three lists of `OptionLists`.

    If an option is missing in a list, importing the client raises TypeError.
    """
    assert CHAPTERS[chapter].omissions() == []


class IncompleteConfig(TypedDict, total=False):
    only_a_type: int
    described: int
    security_protocol: str


class IncompleteOptions(msgspec.Struct):
    described: int = 0
    only_a_default: int = 0
    security: object = None


def test_an_option_that_is_missing_in_a_list_is_named_with_the_list() -> None:
    described = Option("Section", lambda *_: None, "It is described.")
    lists = OptionLists(
        "TABLE", {"described": described, "only_a_row": described}, IncompleteConfig, IncompleteOptions()
    )
    assert [message.partition(" of tests/")[0] for message in lists.omissions()] == [
        "the option only_a_default is missing in TABLE",
        "the option only_a_default is missing in IncompleteConfig",
        "the option only_a_row is missing in IncompleteConfig",
        "the option only_a_row is missing in IncompleteOptions",
        "the option only_a_type is missing in TABLE",
        "the option only_a_type is missing in IncompleteOptions",
    ]


# The modules that declare and check the options: an option that only they mention has no effect.
DECLARATIONS = ("options.py", "consumer_options.py", "producer_options.py")


@cache
def attributes_of_clients() -> frozenset[str]:
    """Return all attribute names in `consumer`, except in modules that only declare or check options."""
    return frozenset().union(
        *(
            names_in(path.read_text()).attributes
            for path in (ROOT / "consumer").rglob("*.py")
            if path.relative_to(ROOT / "consumer").as_posix() not in DECLARATIONS
        )
    )


def is_applied(option: str) -> bool:
    """Return whether code reads an option, or the property of `ConsumerOptions` that is computed from it."""
    computed = {"policy": "as_java", "metadata_recovery_strategy": "recovers"}
    return computed.get(option, option) in attributes_of_clients()


def test_every_option_of_a_client_is_read() -> None:
    unread = [option for option in sorted(CONSUMER.keys() | PRODUCER.keys()) if not is_applied(option)]
    assert unread == [], "options of the clients without an effect: no module reads them"


def test_an_option_without_a_reader_is_found() -> None:
    assert not is_applied("option_that_no_module_reads")
