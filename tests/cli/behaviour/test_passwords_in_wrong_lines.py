"""Errors about invalid command lines hide each word that is recognizable as a password by its position.

Each tested line is a command, followed by words that make it invalid and contain a password. Examples are an
unknown option and an invalid value.

Some passwords cannot be recognized as passwords, so the errors show them:

* a word of its own that does not follow an option (`kproto topics list PASSWORD`)
* a password that is joined to an option (`--passwordPASSWORD`), because the whole word counts as the option's
  name
* a word after the value of an option (`kproto acls add --user alice PASSWORD`, where --user abbreviates
  --user-principal)
* a value of an existing option whose values are not secret (`--listen alice:PASSWORD`, or `--key PASSWORD`,
  where --key abbreviates --key-format)
* PASSWORD in `NAME@PASSWORD@HOST`
* a word after `kproto decode`, because it counts as the data to decode
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from kproto.cli import main

PASSWORD = "s3cr3tPw"
BOOTSTRAP = ["--bootstrap", "127.0.0.1:1"]
COMMANDS = [
    ["topics", "list", *BOOTSTRAP],
    ["consume", "t", *BOOTSTRAP],
    ["users", "set", "alice", *BOOTSTRAP],
    ["acls", "add", *BOOTSTRAP, "--principal", "User:x", "--operation", "read"],
    ["configs", "alter", *BOOTSTRAP, "brokers", "1"],
    ["broker", "--listen", "x:"],
    ["watch", "127.0.0.1:1"],
    ["demo", "--records", "x"],
    [],
]
USER_OPTIONS = "--user -u --username --user-pass --sasl --login --cred --credentials --auth --basic-auth -U"
USERS = ["alice:{}", "alice {}", "alice={}", "alice/{}", "alice,{}", ":{}", "{}:", "User:alice:{}"]
SECRET_OPTIONS = "--password -p --pass --pw --passphrase --secret --sasl.password -P --key-pem --token -w"
VALUES = [" {}", "={}", ":{}", " = {}", "= {}", ": {}"]
CONFIG_OPTIONS = "--set --config --property -X --command-property"
CONFIGS = "sasl.password password ssl.key.password sasl.jaas.config basic.auth.user.info pass listener.jaas"
ADDRESSES = ["alice:{}@h:1", "kafka://alice:{}@h", "alice:{}", "h:1?sasl_password={}", "h:1;password={}"]


def wrong_words() -> Iterator[list[str]]:
    """Yield words that make a command line invalid if they follow the command."""
    for name, value in product(USER_OPTIONS.split(), USERS):
        yield [name, *value.format(PASSWORD).split()]
        yield [f"{name}={value.format(PASSWORD)}"]
    for name, value in product(SECRET_OPTIONS.split(), VALUES):
        yield f"{name}{value.format(PASSWORD)}".split(" ")
        yield [f"{name}{value.format(PASSWORD)}"]
    for option, name, value in product(CONFIG_OPTIONS.split(), CONFIGS.split(), VALUES):
        yield [option, f"{name}{value.format(PASSWORD)}"]
        yield [option, *f"{name}{value.format(PASSWORD)}".split(" ")]
    for address in ADDRESSES:
        yield [address.format(PASSWORD)]
        yield ["--bootstrap-server", address.format(PASSWORD)]
    yield ["--add-config", f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]"]
    yield [f"SCRAM-SHA-256=[password={PASSWORD}]"]


LINES = [[*COMMANDS[index % len(COMMANDS)], *words] for index, words in enumerate(wrong_words())]


def check(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(line)
    except SystemExit as end:
        code = end.code
    output = "".join(capsys.readouterr())
    assert code, line
    assert PASSWORD not in output, (line, output)


@pytest.mark.parametrize("start", range(8))
def test_a_wrong_line_shows_no_password(start: int, capsys: pytest.CaptureFixture[str]) -> None:
    for line in LINES[start * 11 :: 88]:
        check(line, capsys)


@pytest.mark.thorough
def test_no_wrong_line_shows_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [[*command, *words] for command, words in product(COMMANDS, wrong_words())]
    for line in lines:
        if line[0] != "acls" or line[-3:] != ["--user", "alice", PASSWORD]:
            check(line, capsys)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("topics list --bootstrap h:1 --port 9092", "unrecognized arguments: --port ...\n"),
        ("topics list --bootstrap h:1 --port=9092 x", "unrecognized arguments: --port=...\n"),
        ("topics list --bootstrap h:1 t:3 u", "unrecognized arguments: t:3 u\n"),
        ("topics list --bootstrap h:1 --x --y", "unrecognized arguments: --x --y\n"),
        ("--bootstrap h:1 topics list", "--bootstrap ...: this option does not exist"),
        ("broker --set alice:x", "'alice...' is not NAME=VALUE"),
    ],
)
def test_an_error_still_names_the_option(line: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(line.split())
    assert shown in capsys.readouterr().err
