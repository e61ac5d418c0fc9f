"""Command-line arguments are parsed, and errors name the invalid argument and what is allowed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer import TopicPartition
from kproto.cli import arguments as parse
from kproto.errors import ConfigError


@pytest.mark.parametrize(
    ("parser", "text", "expected"),
    [
        (parse.positive, "1", 1),
        (parse.positive, "9" * 18, 10**18 - 1),
        (parse.seconds, "0.5", 0.5),
        (parse.seconds, "86400", 86_400.0),
        (parse.duration, "0ms", 0),
        (parse.duration, "400ms", 400),
        (parse.duration, "1.5s", 1_500),
        (parse.duration, "10m", 600_000),
        (parse.duration, "8784h", 366 * 86_400_000),
        (parse.positive_duration, "1ms", 1),
        (parse.whole_number, "-12", -12),
        (parse.whole_number, "0", 0),
        (parse.rate, "100/s", 100),
        (parse.rate, "1", 1),
        (parse.port, "1", 1),
        (parse.port, "65535", 65_535),
        (parse.api, "Fetch", "Fetch"),
        (parse.api, "fetchrequest", "Fetch"),
        (parse.api, "JOINGROUPRESPONSE", "JoinGroup"),
        (parse.api, "0", "Produce"),
        (parse.api_version, "Fetch:17", ("Fetch", 17)),
        (parse.api_version, "apiversions:99", ("ApiVersions", 99)),
        (parse.message_version, "JoinGroupRequest:9", ("JoinGroupRequest", 9)),
        (parse.address, "[::1]:9092", ("::1", 9092)),
        (parse.address, "h:0", ("h", 0)),
        (parse.address, "h:65535", ("h", 65_535)),
        (parse.topic, "flights:1", ("flights", 1)),
        (parse.topic, "a:b:3", ("a:b", 3)),
        (parse.user, "alice:a:b", ("alice", "a:b")),
        (parse.setting, "a=b=c", ("a", "b=c")),
        (parse.setting, "a=", ("a", "")),
    ],
)
def test_an_argument_is_parsed(parser: Callable[[str], Any], text: str, expected: Any) -> None:
    assert parser(text) == expected


@pytest.mark.parametrize(
    ("parser", "texts", "message"),
    [
        (parse.positive, ["0", "-1", "1.5", "", "9" * 19], "is not a whole number of at least 1"),
        (parse.seconds, ["0", "-1", "x", "86400.5", "nan"], "a number of seconds above 0 and up to 86400"),
        (parse.duration, ["", "5", "s", "-1s", "1 s", "1d"], "is not a time such as 400ms, 4s, 10m or 1h"),
        (parse.duration, ["8784.001h", "999999999999s"], "the longest time is a year, 8784h"),
        (parse.positive_duration, ["0s", "0.4ms"], "is not a time above 0"),
        (parse.whole_number, ["", "1.0", "--1", "+1", "9" * 19], "is not a whole number"),
        (parse.rate, ["0/s", "x/s", "5/m", "-1"], "is not a rate such as 100/s"),
        (parse.port, ["0", "65536", "-1", "http"], "is not a port from 1 to 65535"),
        (parse.api, ["Fetsh", "9999", ""], "`kproto versions` lists the APIs"),
        (parse.api_version, ["Fetch", "Fetch:", ":1", "Fetch:-1"], "is not NAME:VERSION, such as Fetch:17"),
        (parse.api_version, ["Fetch:99"], "Fetch has no version 99; its versions are"),
        (parse.message_version, ["JoinGroup"], "is not NAME:VERSION, such as JoinGroupRequest:9"),
        (parse.message_version, ["JoinGroupRequest:99"], "JoinGroupRequest has no version 99; its versions"),
        (parse.message_version, ["JoinGroup:9"], "JoinGroupRequest"),
        (parse.address, ["h:65536"], "the port of 'h:65536' is above 65535"),
        (parse.address, ["h", ":1", "h:", "h:-1", "h:x"], "is not HOST:PORT, such as 127.0.0.1:9092"),
        (
            parse.address,
            ["::1:9092", "[::1:9092", "[h]:9092", "[]:9092"],
            "such as 127.0.0.1:9092 or [::1]:9092",
        ),
        (parse.topic, ["t", "t:0", ":1", "t:x"], "is not NAME:PARTITIONS, such as flights:3"),
        (parse.setting, ["a", "=b", ""], "is not NAME=VALUE"),
    ],
)
def test_an_invalid_argument_is_named_with_what_is_allowed(
    parser: Callable[[str], Any], texts: list[str], message: str
) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            parser(text)
        assert message in str(caught.value), text


@pytest.mark.parametrize("text", ["alice", ":s3cr3t", "s3cr3t:", ""])
def test_the_error_of_a_user_does_not_repeat_a_password(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"^a user is NAME:PASSWORD, such as alice:secret$"):
        parse.user(text)


def test_pairs_have_different_names() -> None:
    assert parse.key_values("--config", ["a=1", "b=", "c=x=y"]) == {"a": "1", "b": "", "c": "x=y"}
    assert parse.key_values("--config", []) == {}
    for words in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(ConfigError, match="NAME=VALUE, with each name once"):
            parse.key_values("--config", words)


def test_the_partitions_of_a_topic_are_all_or_those_with_the_numbers() -> None:
    def partitions_of(topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(4)]

    assert parse.topic_partitions("--topic", "t", partitions_of) == partitions_of("t")
    assert parse.topic_partitions("--topic", "t:3,0", partitions_of) == [
        TopicPartition("t", 3),
        TopicPartition("t", 0),
    ]
    for word in (":1", "t:", "t:1,", "t:-1", "t:x"):
        with pytest.raises(ConfigError, match="allowed: a topic, or TOPIC:P,P for some of its partitions"):
            parse.topic_partitions("--topic", word, partitions_of)


def test_a_file_that_is_not_writable_is_named_with_its_option(tmp_path: Path) -> None:
    parse.write("--html", tmp_path / "page.html", "über")
    assert (tmp_path / "page.html").read_bytes() == "über".encode()
    with pytest.raises(
        ConfigError, match=r"--html=.*cannot be written: No such file.*; allowed: a writable file"
    ):
        parse.write("--html", tmp_path / "missing" / "page.html", "")


def test_the_settings_of_a_command_config_are_those_of_an_admin_client(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with pytest.raises(ConfigError, match="--command-config="):
        parse.client_security(file)
    file.write_text("ssl.truststore.type=JKS\nssl.truststore.location=x\n")
    with pytest.raises(ConfigError) as caught:
        parse.client_security(file)
    assert caught.value.option != "--command-config"
    file.write_text("security.protocol=PLAINTEXT\n")
    assert parse.client_security(file) == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("words", "hidden", "shown"),
    [
        (["--sasl-password", "s3cr3t", "next"], ["s3cr3t"], ["next"]),
        (["--sasl-password=s3cr3t", "next"], ["s3cr3t"], ["next"]),
        (["--set", "ssl.key.password=s3cr3t"], ["s3cr3t"], ["ssl.key.password"]),
        (["--sasl-password", "--json"], [], ["--json"]),
        (["alice:s3cr3t@host:9092"], ["s3cr3t"], ["host:9092"]),
        (["host:9092?password=s3cr3t"], ["s3cr3t"], ["host:9092"]),
        (["--topic", "flights"], [], ["flights"]),
    ],
)
def test_an_error_shows_no_password_of_the_command_line(
    words: list[str], hidden: list[str], shown: list[str]
) -> None:
    message = parse.without_secrets(f"not allowed: {' | '.join(words)}", words)
    assert not any(text in message for text in hidden)
    assert all(text in message for text in shown)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--nope", "s3cr3t", "more", "--other"], "--nope ... --other"),
        (["--nope=s3cr3t", "more"], "--nope=..."),
        (["-ps3cr3t"], "-p..."),
        (["alice:s3cr3t"], "alice:..."),
        (["User:alice:s3cr3t"], "User:alice:..."),
        (["flights:3", "host:9092"], "flights:3 host:9092"),
        (["first", "second"], "first second"),
        (["a=b", "a/b"], "a=b a/b"),
    ],
)
def test_words_that_no_parser_recognizes_are_shown_without_values(words: list[str], shown: str) -> None:
    assert parse.without_values(words) == shown


@pytest.mark.parametrize(
    ("words", "message", "shown"),
    [
        # The password "hidden" is also a word of the mask "[hidden]". This word of the mask must not be
        # masked again.
        (["--password", "hidden"], "'hidden' is invalid", "'[hidden]' is invalid"),
        (["--password", "x", "x"], "x is invalid", "[hidden] is invalid"),
        (["--password", ""], "'' is invalid", "'' is invalid"),
        (["--password=s3cr3t"], "'s3cr3t' is invalid", "'[hidden]' is invalid"),
        (["--password", "a\\b"], r"'a\\b' or a\b", "'[hidden]' or [hidden]"),
    ],
)
def test_the_mask_of_a_password_is_readable(words: list[str], message: str, shown: str) -> None:
    assert parse.without_secrets(message, words) == shown
