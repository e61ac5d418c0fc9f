"""Users' regular expressions are compiled without Python's warnings, which are meant for programmers."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import pytest

from kproto.patterns import compiled

AMBIGUOUS = ["[[:alpha:]]+", "[!--b]", "[a&&b]", "[a~~b]", "[a||b]", "(([[a]))", "[+--]"]


@pytest.mark.parametrize("pattern", AMBIGUOUS)
def test_a_possible_nested_set_is_compiled_without_a_warning(pattern: str) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        re.purge()
        re.compile(pattern)
        assert [warning.category for warning in warned] == [FutureWarning]
        re.purge()
        compiled.cache_clear()
        assert compiled(pattern).pattern == pattern
        assert len(warned) == 1


def test_a_possible_nested_set_is_no_error_if_warnings_are_errors() -> None:
    code = "from kproto.patterns import compiled; print(compiled('[[:alpha:]]+').pattern)"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.stderr) == ("[[:alpha:]]+\n", "")


def test_other_modules_still_get_the_warning() -> None:
    compiled("[[a]")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        re.purge()
        re.compile("[[a]")
    assert len(warned) == 1


def test_an_invalid_pattern_raises_re_error() -> None:
    with pytest.raises(re.error, match="unterminated character set"):
        compiled("[[")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a{99999999999999}", "the repetition number is too large"),
        ("(" * 5_000 + ")" * 5_000, "the groups are nested too deeply"),
    ],
    ids=["repetition", "nesting"],
)
def test_a_pattern_that_is_too_large_raises_re_error(pattern: str, reason: str) -> None:
    with pytest.raises(re.error, match=reason):
        compiled(pattern)
