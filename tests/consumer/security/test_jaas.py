"""JAAS lines are read as in Java.

tests/conformance/test_properties_like_java.py compares the results with Java's results.
"""

from __future__ import annotations

import pytest

from consumer.security.jaas import read_jaas
from kproto.errors import ConfigError

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (r""" username="al\"ice" password="s=3;," """, {"username": 'al"ice', "password": "s=3;,"}),
        (" username='it\"s' password=\"it's\"", {"username": 'it"s', "password": "it's"}),
        (r' password="a\tb\\c\101\u"', {"password": "a\tb\\cAu"}),
        (' // of the team\n username=alice /* and */ password=/* this */"a//b"', None),
        (" user.name-x_1=$a-b.c", {"user.name-x_1": "$a-b.c"}),
        (' "username"="alice"', {"username": "alice"}),
        (' username="a" username="b"', {"username": "b"}),
        ("", {}),
    ],
)
def test_a_line_is_read_as_java_reads_it(options: str, expected: dict[str, str] | None) -> None:
    module, options_read = read_jaas(f"\n{MODULE} REQUIRED{options};\n")
    assert module == MODULE
    assert options_read == (expected if expected is not None else {"username": "alice", "password": "a//b"})


@pytest.mark.parametrize(
    "line",
    [
        "",
        ";",
        MODULE,
        f"{MODULE} required",
        f"{MODULE} needed;",
        # Java's parser reads the leading 1 of 1secret as a number, which it does not accept as a value.
        f"{MODULE} required username=1secret;",
        # Java's parser reads the slash as the start of a comment.
        f"{MODULE} required username=secret/secret;",
        f"{MODULE} required username=secret!;",
        f"{MODULE} required username;",
        f'{MODULE} required username="secret',
        f'{MODULE} required username="secret"; {MODULE} required;',
    ],
)
def test_a_line_that_java_rejects_is_rejected_without_being_shown(line: str) -> None:
    with pytest.raises(ConfigError, match=r"one module, as in .* with values in double quotes") as caught:
        read_jaas(line)
    assert "secret" not in repr(caught.value).replace('="..."', "")
