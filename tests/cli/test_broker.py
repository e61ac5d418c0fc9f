"""`kproto broker --tls-self-signed` prints what a client needs to connect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consumer import Cluster
from tests.cli.stage import PASSWORD, running_broker

pytest.importorskip("trustme")


@pytest.mark.parametrize(
    ("protocol", "words"),
    [("SASL_SSL", []), ("SSL", ["--set", "ssl.client.auth=required"])],
)
def test_the_printed_python_call_connects(tmp_path: Path, protocol: str, words: list[str]) -> None:
    with running_broker(tmp_path / "made", *words, protocol=protocol) as lines:
        assert re.fullmatch(
            rf"listening on PLAINTEXT://127.0.0.1:\d+, {protocol}://localhost:\d+; .*\n", lines[0]
        )
        [line] = [line for line in lines if "kproto " in line]
        call = line.split(maxsplit=1)[1].replace("...", PASSWORD)
        with eval(call, {"Consumer": Cluster}) as cluster:
            assert cluster.topics() == {"flights": 1}
    assert PASSWORD not in "".join(lines)
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0
