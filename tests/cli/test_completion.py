"""`kproto completion` prints a script that completes commands, options and their values in bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kproto.cli import build_parser, main
from kproto.cli.completion import script

BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")


@pytest.fixture(scope="module")
def functions() -> str:
    parser, _ = build_parser()
    return script(parser)


def complete(functions: str, *words: str) -> list[str]:
    """Return the words that bash offers for the last of `words`."""
    assert BASH is not None
    program = (
        f'{functions}\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n_kproto\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    order = [BASH, "--norc", "-c", program, "bash", *words]
    return subprocess.run(order, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kproto qu", ["quotas"]),
        ("kproto top", ["topics"]),
        ("kproto topics de", ["describe", "delete"]),
        ("kproto topics delete --ex", ["--execute"]),
        ("kproto cluster re", ["reassign", "reassignments", "remove-controller"]),
        ("kproto configs describe client", ["client-metrics"]),
        ("kproto acls add --operation alter", ["alter", "alter_configs"]),
        ("kproto acls add --topic t --operation read --pattern l", ["literal"]),
        ("kproto consume t --value-format he", ["hex"]),
        ("kproto topics create --command-config ", []),  # File names are left to bash.
        ("kproto topics create topics --bootstrap a:1 --parti", ["--partitions"]),
        ("kproto nothing", []),
    ],
)
def test_words_are_completed(functions: str, line: str, offered: list[str]) -> None:
    assert complete(functions, *line.split(" ")) == offered


def test_the_first_word_is_any_command(functions: str) -> None:
    _, commands = build_parser()
    offered = complete(functions, "kproto", "")
    assert offered[: len(commands)] == list(commands)
    assert set(offered[len(commands) :]) == {"--help", "--version"}


def test_the_command_prints_the_script(functions: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion"]) == 0
    assert capsys.readouterr().out == functions
