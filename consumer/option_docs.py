"""Tables of the options, for the docstrings of the clients and for the reference page.

The page is docs/reference/client-options.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from inspect import cleandoc
from typing import Any, NamedTuple, TypeVar

import msgspec

from .consumer_options import CONSUMER, ConsumerConfig, ConsumerOptions
from .option_checks import Option
from .producer_options import PRODUCER, ProducerConfig, ProducerOptions
from .security.option_names import SECURITY, SecurityConfig

C = TypeVar("C", bound=type)

_INDENT = "    "
_WIDTH = 96


class OptionLists(NamedTuple):
    """The three lists of a client's options. Each list must contain every option.

    Each list is written by hand, because a type checker cannot derive one from another.
    """

    table_name: str
    table: Mapping[str, Option]
    config: type[Any]  # The types of the keyword arguments.
    options: msgspec.Struct  # The options with their default values.

    def omissions(self) -> list[str]:
        """Return an error message for each option and each of the three lists that lacks it."""
        names_by_list = {
            self.table_name: self.table.keys(),
            self.config.__name__: self.config.__annotations__.keys() - SECURITY.keys(),
            type(self.options).__name__: {*self.options.__struct_fields__} - {"security"},
        }
        file = self.config.__module__.replace(".", "/") + ".py"
        return [
            f"the option {name} is missing in {list_name} of {file}; add it, or remove it from the others"
            for name in sorted(frozenset[str]().union(*names_by_list.values()))
            for list_name, names in names_by_list.items()
            if name not in names
        ]


# The lists of options for each chapter of the reference page.
CHAPTERS: Mapping[str, OptionLists] = {
    "A consumer": OptionLists("CONSUMER", CONSUMER, ConsumerConfig, ConsumerOptions()),
    "A producer": OptionLists("PRODUCER", PRODUCER, ProducerConfig, ProducerOptions()),
}


class OptionDoc(NamedTuple):
    """An option as the documentation shows it."""

    name: str
    type: str
    default: str  # The default as Python code; "" if the description states the default.
    description: str


def consumer_docs() -> list[OptionDoc]:
    """Return the options of a consumer, except those of TLS and SASL."""
    return _option_docs("A consumer")


def producer_docs() -> list[OptionDoc]:
    """Return the options of a producer, except those of TLS and SASL."""
    return _option_docs("A producer")


def security_docs() -> list[OptionDoc]:
    """Return the options of TLS and SASL, which every client takes."""
    types = _type_texts(SecurityConfig)
    return [OptionDoc(name, types[name], "", description) for name, description in SECURITY.items()]


def with_options(options: list[OptionDoc] | None = None) -> Callable[[C], C]:
    """Return a class decorator that appends a client's options, including TLS and SASL, to its docstring."""

    def decorate(client: C) -> C:
        lines = [cleandoc(client.__doc__ or "")]
        if options is not None:
            lines += ["", "Options and their defaults:"]
            for option in options:
                lines += _docstring_lines(
                    f"{option.name}: {option.type} = {option.default}", option.description
                )
        lines += ["", "For TLS and SASL:"]
        for option in security_docs():
            lines += _docstring_lines(f"{option.name}: {option.type}", option.description)
        client.__doc__ = "\n".join(lines)
        return client

    return decorate


def option_tables(chapter: str) -> Iterator[tuple[str, str]]:
    """Yield the name and Markdown table of each section of a chapter of docs/reference/client-options.md."""
    if chapter == "TLS and SASL":
        yield "", _markdown_table(security_docs(), ("option", "meaning"))
        return
    table = CHAPTERS[chapter].table
    docs = {option.name: option for option in _option_docs(chapter)}
    for section in dict.fromkeys(option.section for option in table.values()):
        rows = [docs[name] for name, option in table.items() if option.section == section]
        yield section, _markdown_table(rows, ("option", "default", "meaning"))


def _option_docs(chapter: str) -> list[OptionDoc]:
    """Return the options of a chapter.

    Raises TypeError if an option is missing from one of the three lists of `OptionLists`.
    """
    lists = CHAPTERS[chapter]
    if omissions := lists.omissions():
        raise TypeError("\n".join(omissions))
    types, defaults = _type_texts(lists.config), msgspec.structs.asdict(lists.options)
    return [
        OptionDoc(name, types[name], _default_code(defaults[name]), option.description)
        for name, option in lists.table.items()
    ]


def _default_code(value: Any) -> str:
    """Return a default as Python code, for example "1_000"."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:_}" if is_number else repr(value)


def _type_texts(config: type[Any]) -> Mapping[str, str]:
    """Map the options of a config class to their types, as written in the annotations."""
    return {
        name: getattr(annotation, "__forward_arg__", str(annotation))
        for name, annotation in config.__annotations__.items()
    }


def _docstring_lines(declaration: str, description: str) -> list[str]:
    """Return the lines that describe an option in a docstring."""
    wrapped = textwrap.wrap(description, _WIDTH - 2 * len(_INDENT), break_long_words=False)
    return [f"{_INDENT}{declaration}", *(f"{2 * _INDENT}{line}" for line in wrapped)]


def _markdown_table(options: list[OptionDoc], header: tuple[str, ...]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for option in options:
        default = [f"`{option.default}`"] if option.default else []
        cells = [f"`{option.name}`", *default, option.description]
        escaped_cells = [cell.replace("|", r"\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped_cells)} |")
    return "\n".join(lines)
