"""`kproto member` starts a member with the options that its arguments set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kproto.cli import main


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of the members that commands started. No member actually runs."""
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr("kproto.testing.driver.drive", lambda *arguments: started.append(arguments))
    return started


def test_a_member_has_its_client_and_options(members: list[tuple[Any, ...]], tmp_path: Path) -> None:
    words = ["kafka:9092", "me", "readers"]
    assert main(["member", "--as", "sarama", *words]) == 0
    assert main(["member", "--as", "sarama", *words, '{"reset": "earliest"}']) == 0
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\n")
    secured = ["--as", "kproto", "--command-config", str(config)]
    assert main(["member", *secured, *words, '{"reset": "earliest"}']) == 0
    assert members == [
        ("sarama", *words, {}),
        ("sarama", *words, {"reset": "earliest"}),
        ("kproto", *words, {"reset": "earliest", "security_protocol": "PLAINTEXT"}),
    ]


@pytest.mark.parametrize(("text", "why"), [("[1]", "not a JSON object"), ("{", "is not valid JSON")])
def test_the_options_are_a_json_object(
    members: list[tuple[Any, ...]], text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["member", "--as", "sarama", "kafka:9092", "me", "readers", text])
    assert caught.value.code == 2
    assert why in capsys.readouterr().err
    assert members == []
