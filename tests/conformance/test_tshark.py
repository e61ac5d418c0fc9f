"""tshark finds no malformed packets in the traffic between kproto's client and broker.

tshark makes one capture. `kproto watch --pcap` makes two, one of them with TLS. The broker advertises old
versions, because Debian's tshark supports no newer ones.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from consumer import Consumer, Producer
from kproto.broker.server import running
from kproto.inspect.capture import frames
from kproto.testing.certificates import certificates
from tests.conformance.judges import missing
from tests.conformance.watch_process import watching

pytestmark = pytest.mark.tshark

# The highest versions that tshark 4.0 dissects. ApiVersions 4 has the same bytes as 3.
KNOWN = {
    "ApiVersions": 4,
    "Produce": 8,
    "Fetch": 11,
    "ListOffsets": 5,
    "Metadata": 9,
    "OffsetCommit": 8,
    "OffsetFetch": 7,
    "FindCoordinator": 3,
    "JoinGroup": 7,
    "LeaveGroup": 4,
    "InitProducerId": 3,
    "OffsetForLeaderEpoch": 3,
}


SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module", params=["captured", "watched", "watched-tls"])
def conversation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, int]:
    """Return a capture of the traffic of a producer and a group's consumer, and the broker's port."""
    tshark = shutil.which("tshark") or missing("tshark")
    folder = tmp_path_factory.mktemp("tshark")
    if request.param == "captured":
        return _captured(tshark, folder / "kafka.pcapng")
    return _watched(folder, tls=request.param == "watched-tls")


def _captured(tshark: str, path: Path) -> tuple[Path, int]:
    with running(topics={"flights": 2}, settings=SETTINGS, highest=KNOWN) as server:
        port = server.bootstrap.rpartition(":")[2]
        order = [tshark, "-i", "lo", "-f", f"tcp port {port}", "-w", str(path), "-q"]
        with subprocess.Popen(order, stderr=subprocess.PIPE, text=True) as capture:
            assert capture.stderr is not None
            for line in capture.stderr:  # Wait until tshark reports that it captures.
                if "PcapWriter started" in line or "Capturing on" in line:
                    break
            else:
                missing("tshark with the right to capture on lo")
            time.sleep(1)
            _talk(server.bootstrap)
            time.sleep(1)
            capture.terminate()
            capture.communicate(timeout=20)
    return path, int(port)


def _watched(folder: Path, tls: bool) -> tuple[Path, int]:
    path = folder / "kafka.pcap"
    options, how = [f"--pcap={path}"], {}
    if tls:
        pytest.importorskip("trustme")
        files = certificates(folder)
        how = {"listen": ["SSL://127.0.0.1:0"], "tls": files.context()}
        options += ["--tls", f"--tls-ca={files.ca}"]
    with running(topics={"flights": 2}, settings=SETTINGS, highest=KNOWN, **how) as server:
        with watching(server.bootstrap, folder / "seen", *options) as where:
            _talk(where)
        return path, int(server.bootstrap.rpartition(":")[2])


def _talk(bootstrap: str) -> None:
    with Producer(bootstrap, enable_idempotence=True) as producer:
        for number in range(100):
            producer.send("flights", b"v%d" % number, key=b"k", headers=[("h", b"x")])
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        record_count = 0
        while record_count < 100:
            record_count += len(consumer.poll(5.0))
        consumer.commit()


def _fields(conversation: tuple[Path, int], *fields: str) -> list[list[str]]:
    path, port = conversation
    wanted = [word for field in fields for word in ("-e", field)]
    order = [
        "tshark",
        "-r",
        str(path),
        "-d",
        f"tcp.port=={port},kafka",
        "-Y",
        "kafka",
        "-T",
        "fields",
        *wanted,
    ]
    output = subprocess.run(order, capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in output.splitlines()]


def test_no_packet_is_malformed(conversation: tuple[Path, int]) -> None:
    rows = _fields(conversation, "frame.number", "_ws.malformed", "kafka.api_key")
    assert len(rows) > 20
    # The client first sends ApiVersions 5. tshark 4.0 cannot dissect version 5, and the broker rejects it.
    assert [row for row in rows if row[1] and row[2] != "18"] == []


def test_tshark_names_topic_group_and_client(conversation: tuple[Path, int]) -> None:
    rows = _fields(conversation, "kafka.topic_name", "kafka.consumer_group", "kafka.client_id")
    names = {word for row in rows for cell in row for word in cell.split(",")}
    assert {"flights", "g", "kproto"} <= names


def test_tshark_and_kproto_see_the_same_requests(conversation: tuple[Path, int]) -> None:
    rows = _fields(conversation, "tcp.dstport", "kafka.api_key", "kafka.api_version")
    theirs: list[tuple[int, int]] = []
    for port, keys, versions in rows:
        if int(port) == conversation[1]:
            theirs += zip(map(int, keys.split(",")), map(int, versions.split(",")), strict=True)
    ours = []
    for frame in frames(*conversation):
        assert frame.dissection is not None
        assert frame.dissection.error is None, frame.title
        body = frame.dissection.parts[1]
        if body.message.__name__.endswith("Request"):
            ours.append((body.message.__api_key__, body.version))
    assert sorted(ours) == sorted(theirs)
