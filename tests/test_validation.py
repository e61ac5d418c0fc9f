"""Functions of the embedded broker and the testing kit reject invalid arguments before their code runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproto.errors import ConfigError
from kproto.validation import NAMES_TO_TEXTS, PARTITION, TEXT, WHOLE_NUMBER, checked, or_none, secret

KPROTO = Path(__file__).parents[1] / "kproto"
# Parameters with these annotations need a check.
PLAIN = {"bytes", "float", "int", "str", "TopicPartition", "Mapping[str, int]", "Mapping[str, str]"}


def checked_functions() -> Iterator[tuple[str, list[ast.arg], set[str]]]:
    """Yield the name, the parameters and the checked parameters of each decorated function.

    These functions have the decorator `checked` or `kept` of kproto's validation.
    """
    for path in KPROTO.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "@checked" not in source and "@kept" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            rules = {
                keyword.arg or ""
                for call in node.decorator_list
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "checked"
                for keyword in call.keywords
            }
            if rules or any(ast.unparse(decorator) == "kept" for decorator in node.decorator_list):
                several = [node.args.vararg] if node.args.vararg else []
                yield f"{path.stem}.{node.name}", node.args.args + node.args.kwonlyargs + several, rules


def test_every_plain_argument_of_a_checked_function_has_a_rule() -> None:
    """Every parameter of a checked function has a check, including parameters that are added later."""
    functions = list(checked_functions())
    assert len(functions) > 90
    assert [
        (name, parameter.arg)
        for name, parameters, rules in functions
        for parameter in parameters
        if parameter.annotation is not None
        and ast.unparse(parameter.annotation).removesuffix(" | None") in PLAIN
        and parameter.arg not in rules
    ] == []


def test_a_wrong_argument_is_rejected_before_the_call() -> None:
    calls: list[object] = []

    @checked(name=TEXT, sizes=WHOLE_NUMBER)
    def configure(name: object, *sizes: object) -> None:
        calls.append((name, sizes))

    configure("flights", 1, 2)
    with pytest.raises(ConfigError, match="name=7 is not allowed; a text"):
        configure(7)
    with pytest.raises(ConfigError, match=r"sizes='two' is not allowed; a whole number"):
        configure("flights", 1, "two")
    assert calls == [("flights", (1, 2))]


def test_the_default_of_a_parameter_is_allowed() -> None:
    @checked(partition=PARTITION)
    def find(partition: object = None) -> object:
        return partition

    assert find() is find(None) is None


def test_or_none_allows_none_in_place_of_another_default() -> None:
    @checked(name=or_none(TEXT))
    def configure(name: object = "flights") -> object:
        return name

    assert configure(None) is None
    with pytest.raises(ConfigError):
        configure(7)


def test_the_error_of_a_secret_argument_does_not_show_it() -> None:
    @checked(users=secret(NAMES_TO_TEXTS))
    def configure(users: object) -> None:
        pass

    with pytest.raises(ConfigError) as caught:
        configure({"alice": b"wonderland"})
    assert "wonderland" not in str(caught.value)
    assert caught.value.allowed == "names to texts"


def test_a_rule_for_a_parameter_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="configure has no parameter 'names', for which checked"):

        @checked(names=TEXT)
        def configure(name: str) -> None:
            pass
