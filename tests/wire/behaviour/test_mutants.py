"""Each mutant (a copy of the codec compiler with one mistake) fails a check in `properties.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, settings

from kproto.wire import compiler as compile_module
from tests.wire import properties
from tests.wire.declarations import Alike, Arrays, Fixed, Nullable, Plain, Ranges, Tagged
from tests.wire.properties import Make
from tests.wire.stage import mutated_compiler

pytestmark = pytest.mark.thorough


def same(make: Make) -> None:
    for cls in (Arrays, Fixed, Nullable, Ranges, Tagged):
        properties.is_the_interpreter(make, cls)


def sees_tags(make: Make) -> None:
    properties.sees_the_tags_of_each_element(make)


def reads_runs(make: Make) -> None:
    properties.sees_what_differs_in_a_run(make)
    properties.reads_runs_of_elements_alike(make)


def survives_in_runs(make: Make) -> None:
    properties.survives_corrupted_runs(make)


def refuses(make: Make) -> None:
    properties.refuses_what_the_interpreter_refuses(make, Ranges, list(range(6)))
    properties.refuses_what_the_interpreter_refuses(make, Arrays, [0, 1])


def survives(make: Make) -> None:
    properties.survives_every_cut_and_corruption(make, Plain, 1)
    properties.survives_every_cut_and_corruption(make, Nullable, 1)


def stays_small(make: Make) -> None:
    properties.stays_small_on_bombs(make, Arrays, 1, b"\x01" * 5, flexible=True)


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
    "compact lengths are one too long": (
        "' - 1' if compact else ''})\"",
        "'' if compact else ''})\"",
        same,
    ),
    "long lengths are read as short ones": ("if n > 127: n, p", "if n > 255: n, p", same),
    "a null struct is read as one that follows": (
        "else 'n < 0'}: {value}",
        "else 'n < -9'}: {value}",
        same,
    ),
    "tags of elements of fixed size are skipped": ('"if buf[p + {size', '"if 0 and buf[p + {size', sees_tags),
    "other layouts are taken for the last one": (
        "' or '.join(mismatches)",
        "' and '.join(mismatches)",
        reads_runs,
    ),
    "tags in a run are skipped": (
        'mismatches += ["tags"] * self',
        'mismatches += ["False"] * self',
        reads_runs,
    ),
    "one more of a run is taken for read": ("length_hint(rows) + 1", "length_hint(rows)", reads_runs),
    "runs aren't held against the end": ("or q > len(buf)", "", reads_runs),
    "null passes in a run where it must not": (
        "length == -1 and not part.nullable",
        "False",
        survives_in_runs,
    ),
    "negative lengths pass for null in a run": ("length < -1 or", "", survives_in_runs),
    "tag sections are skipped": ('"if tags: p = ', '"if tags > 9: p = ', same),
    "defaults of absent fields are forgotten": (
        'return "[]" if f.default == [] else self.constant(f)',
        'return "None"',
        same,
    ),
    "absent structs are null": ('return "LAZY"', 'return "None"', same),
    "values take the place of absent fields": (
        "tuple(plain) == cls.__fields__[: len(plain)] and",
        "",
        same,
    ),
    "long lengths are written as short ones": (
        "if n < 128 else {pack_run}",
        "if n < 256 else {pack_run}",
        same,
    ),
    "null structs are written as others": ("else -1} if {part} is None", "else 1} if {part} is None", same),
    "null structs in tags are written as others": ("{0 if tagged", "{1 if tagged", same),
    "null structs in tags are read as others": ("'not n' if tagged", "'n > 9' if tagged", same),
    "unknown tags are dropped": ('conditions = [f"{variable}._tags"]', 'conditions = ["False"]', same),
    "tagged fields are dropped": ("self.tagged(cls)]", "self.tagged(cls)[:0]]", same),
    "absent fields lose their values": ("if set_but_absent:", "if False:", refuses),
    "unknown tags vanish in old versions": (
        'set_but_absent.append(f"{variable}._tags")',
        'set_but_absent.append("False")',
        refuses,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_of_the_compiler_is_killed(name: str) -> None:
    old, new, check = MUTANTS[name]
    broken = mutated_compiler(old, new)
    make = Make(broken.decoder, broken.encoder)
    # The messages are compiled before the check, because a mutant must compile them without an error. Only
    # the compiled codecs may be wrong.
    for cls in (Alike, Arrays, Fixed, Nullable, Plain, Ranges, Tagged):
        make.decoder(cls, 1)
        make.encoder(cls, 1)
    # The number of examples has a margin, because the examples change with the loaded modules: Hypothesis
    # also draws constants from them.
    settings.register_profile(
        "mutants", max_examples=1000, database=None, derandomize=True, phases=[Phase.generate]
    )
    before = settings.get_current_profile_name()
    settings.load_profile("mutants")
    try:
        with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it stumbles over, it is caught
            check(make)
    finally:
        settings.load_profile(before)
    assert not isinstance(caught.value, NameError | SyntaxError)


@pytest.mark.parametrize(
    "check", [same, sees_tags, reads_runs, survives_in_runs, refuses, survives, stays_small]
)
def test_the_compiler_passes_the_checks_that_kill_its_mutants(check: Callable[[Make], None]) -> None:
    check(Make(compile_module.decoder, compile_module.encoder))
