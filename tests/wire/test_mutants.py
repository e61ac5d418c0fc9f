"""The properties in `properties.py` are worth something: each of these broken compilers fails one of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, settings

from kproto.wire import compile as compile_module
from tests.wire import properties
from tests.wire.declared import Arrays, Nullable, Plain, Ranges, Tagged
from tests.wire.properties import Make

SOURCE = Path(compile_module.__file__).read_text()


def reads(make: Make) -> None:
    for cls in (Arrays, Nullable, Ranges, Tagged):
        properties.decodes_as_the_interpreter(make, cls)


def sees_tags(make: Make) -> None:
    properties.sees_the_tags_of_each_element(make)


def writes(make: Make) -> None:
    for cls in (Arrays, Nullable, Ranges, Tagged):
        properties.encodes_as_the_interpreter(make, cls)


def refuses(make: Make) -> None:
    properties.refuses_what_the_interpreter_refuses(make, Ranges, list(range(6)))
    properties.refuses_what_the_interpreter_refuses(make, Arrays, [0, 1])


def survives(make: Make) -> None:
    properties.survives_every_cut_and_corruption(make, Plain, 1)
    properties.survives_every_cut_and_corruption(make, Nullable, 1)


def stays_small(make: Make) -> None:
    properties.stays_small_on_bombs(make, Arrays, 1, b"\x01" * 8, flexible=True)


MUTANTS: dict[str, tuple[str, str, Callable[[Make], None]]] = {
    "the end isn't checked": ('self.line("if p > end: raise Malformed")', "pass", survives),
    "null passes for an empty value": (
        'self.line("if n < 0: raise Malformed")',
        'self.line("if n < 0: n = 0")',
        survives,
    ),
    "counts aren't held against the bytes left": (
        "} > end - p: raise",
        "} > end + 10**9: raise",
        stays_small,
    ),
    "compact lengths are one too long": ("' - 1' if compact else ''})]", "'' if compact else ''})]", reads),
    "long lengths are read as short ones": ("if n > 127:", "if n > 255:", reads),
    "a null struct is read as one that follows": ('"if n < 0: " + store', '"if n < -9: " + store', reads),
    "tags of elements of fixed size are skipped": ('self.line("if tags: break")', "pass", sees_tags),
    "tag sections are skipped": ("if buf[p]: p = ", "if buf[p] > 9: p = ", reads),
    "defaults of absent fields are forgotten": ("if not self.is_plain(f)]", "if f.tagged]", reads),
    "long lengths are written as short ones": (
        "if n < 128 else {without}",
        "if n < 256 else {without}",
        writes,
    ),
    "null structs are written as others": ('"-1 if {part} is None', '"1 if {part} is None', writes),
    "unknown tags are dropped": ('[f"{variable}._tags", *(self', '["False", *(self', writes),
    "tagged fields are dropped": ("for f in tagged)]", "for f in tagged[:0])]", writes),
    "absent fields lose their values": ("if set_but_absent:", "if False:", refuses),
    "unknown tags vanish in old versions": (
        'set_but_absent.append(f"{variable}._tags")',
        'set_but_absent.append("False")',
        refuses,
    ),
}


def compiler(old: str, new: str) -> ModuleType:
    """The compiler with one place changed."""
    assert SOURCE.count(old) == 1, f"{SOURCE.count(old)} places match {old!r}"
    spec = importlib.util.spec_from_loader("kproto.wire.mutant", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(SOURCE.replace(old, new), "<mutant of kproto.wire.compile>", "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", MUTANTS)
def test_a_compiler_is_caught_in_which(name: str) -> None:
    old, new, check = MUTANTS[name]
    mutant = compiler(old, new)
    make = Make(mutant.decoder, mutant.encoder)
    for cls in (Arrays, Nullable, Plain, Ranges, Tagged):  # it is broken, but it compiles
        make.decoder(cls, 1)
        make.encoder(cls, 1)
    settings.register_profile(
        "mutants", max_examples=60, database=None, derandomize=True, phases=[Phase.generate]
    )
    before = settings.get_current_profile_name()
    settings.load_profile("mutants")
    try:
        with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it stumbles over, it is caught
            check(make)
    finally:
        settings.load_profile(before)
    assert not isinstance(caught.value, NameError | SyntaxError)


@pytest.mark.parametrize("check", [reads, sees_tags, writes, refuses, survives, stays_small])
def test_the_compiler_itself_passes_what_its_mutants_fail(check: Callable[[Make], None]) -> None:
    check(Make(compile_module.decoder, compile_module.encoder))
