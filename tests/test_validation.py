"""Checks of the arguments of the broker and of the testing kit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproto.validation import NAMED, RULES, UNCHECKED, checked

KPROTO = Path(__file__).parents[1] / "kproto"


def annotated_parameters() -> Iterator[tuple[str, str]]:
    """Yield name and annotation of all parameters in the package."""
    for path in KPROTO.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg) and node.annotation is not None:
                yield node.arg, ast.unparse(node.annotation).removesuffix(" | None")


def test_every_rule_is_for_an_annotation_that_exists() -> None:
    """A class that was renamed would lose its rule silently."""
    annotations = {annotation for _, annotation in annotated_parameters()}
    assert set(RULES) - annotations == set(NAMED.values())
    assert annotations >= UNCHECKED
    assert set(NAMED) <= {name for name, _ in annotated_parameters()}


def test_an_annotation_without_a_rule_is_an_error() -> None:
    def configure(name: str, settings: dict[str, float]) -> None:
        pass

    with pytest.raises(TypeError, match=r"configure: the annotation .* of 'settings' has no rule; add it to"):
        checked(configure)
