"""`kproto versions` lists the versions of each API, and its first flexible version."""

from __future__ import annotations

import pytest

from kproto.cli import main
from kproto.messages.index import API_NAMES


def test_an_api_has_its_versions_and_the_first_flexible_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["versions", "SaslHandshake", "Heartbeat", "DescribeCluster"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        " key  API                            versions  flexible from",
        "  12  Heartbeat                      0-4       4",
        "  17  SaslHandshake                  0-1       -",
        "  60  DescribeCluster                0-2       0",
    ]


def test_all_apis_are_listed_by_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["versions"]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [[str(key), name] for key, name in sorted(API_NAMES.items())]
