"""`kproto cluster quorum` shows the quorum of controllers."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from consumer import QuorumInfo, QuorumReplicaState, RaftVoterEndpoint
from kproto.cli import main, quorum
from tests.cli.stage import Shell, StubAdmin

DIRECTORY = UUID(int=7)
ID = "AAAAAAAAAAAAAAAAAAAABw"
INFO = QuorumInfo(
    2,
    5,
    40,
    (
        QuorumReplicaState(1, DIRECTORY, 38, 900, 890),
        QuorumReplicaState(2, DIRECTORY, 41, 1000, 1000),
        QuorumReplicaState(3, None, None, None, None),
    ),
    (QuorumReplicaState(4, None, 40, 950, 940),),
    {1: (RaftVoterEndpoint("CONTROLLER", "::1", 9093),)},
)


def test_the_quorum_of_the_embedded_broker_is_its_controller(shell: Shell) -> None:
    [cluster] = shell.json("cluster describe")
    lines = [line.split(maxsplit=1) for line in shell("cluster quorum")]
    assert lines == [
        ["ClusterId:", cluster["clusterId"]],
        ["LeaderId:", "1"],
        ["LeaderEpoch:", "1"],
        ["HighWatermark:", "0"],
        ["MaxFollowerLag:", "0"],
        ["MaxFollowerLagTimeMs:", "0"],
        ["CurrentVoters:", '[{"id": 1}]'],
        ["CurrentObservers:", "[]"],
    ]
    [row] = shell.json("cluster quorum --replication")
    assert (row["nodeId"], row["directoryId"], row["status"]) == (1, "A" * 22, "Leader")


def test_the_status_has_the_lag_of_the_slowest_voter(capsys: pytest.CaptureFixture[str]) -> None:
    quorum._print_status("c", INFO, as_json=False)
    assert capsys.readouterr().out.splitlines()[4:] == [
        "MaxFollowerLag:         41",
        "MaxFollowerLagTimeMs:   -1",
        f'CurrentVoters:          [{{"id": 1, "directoryId": "{ID}", "endpoints": '
        f'["CONTROLLER://[::1]:9093"]}}, {{"id": 2, "directoryId": "{ID}"}}, {{"id": 3}}]',
        'CurrentObservers:       [{"id": 4}]',
    ]
    quorum._print_status("c", INFO, as_json=True)
    status = json.loads(capsys.readouterr().out)
    assert (status["maxFollowerLagTimeMs"], status["currentVoters"][2]) == (None, {"id": 3})


def test_replicas_are_listed_from_the_leader_to_the_observers(capsys: pytest.CaptureFixture[str]) -> None:
    quorum._print_replicas(INFO, as_json=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["2", ID, "41", "0", "1000", "1000", "Leader"],
        ["1", ID, "38", "3", "900", "890", "Follower"],
        ["3", "A" * 22, "-1", "42", "-1", "-1", "Follower"],
        ["4", "A" * 22, "40", "1", "950", "940", "Observer"],
    ]


def test_controllers_are_added_and_removed_only_with_execute(shell: Shell) -> None:
    adding = f"cluster add-controller 4 --directory-id {ID} --listener CONTROLLER://[::1]:9093"
    assert shell(adding) == [
        f"Add controller 4 with directory id {ID} and endpoints: CONTROLLER://[::1]:9093"
    ]
    assert shell.errors == "no controller was added; add --execute to do it\n"
    removing = f"cluster remove-controller 4 --directory-id {ID}"
    assert shell(removing) == [f"Remove KRaft controller 4 with directory id {ID}"]
    for words, api in ((adding, "AddRaftVoter"), (removing, "RemoveRaftVoter")):
        shell(f"{words} --execute", code=1)
        assert api in shell.errors  # The broker received the request and rejected it.


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (f"add-controller x --directory-id {ID} --listener C://a:1", "'x' is not a node id"),
        ("remove-controller 4 --directory-id short", "'short' is not a directory id of 22 characters"),
        (f"remove-controller 4 --directory-id {ID}!.", "is not a directory id of 22 characters"),
        (f"add-controller 4 --directory-id {ID} --listener a:1", "allowed: NAME://HOST:PORT"),
        (f"add-controller 4 --directory-id {ID} --listener C://a", "allowed: NAME://HOST:PORT"),
    ],
)
def test_invalid_arguments_are_named(shell: Shell, words: str, allowed: str) -> None:
    shell(f"cluster {words}", code=2)
    assert allowed in shell.errors


def test_an_added_or_removed_controller_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = StubAdmin(monkeypatch, quorum, add_raft_voter=None, remove_raft_voter=None)
    which = ["4", "--directory-id", ID, "--execute", "--bootstrap", "kafka:9092"]
    adding = ["cluster", "add-controller", *which, "--listener", "CONTROLLER://[::1]:9093"]
    assert main(adding) == 0
    assert capsys.readouterr().out == (
        f"Added controller 4 with directory id {ID} and endpoints: CONTROLLER://[::1]:9093\n"
    )
    assert main(["cluster", "remove-controller", *which]) == 0
    assert capsys.readouterr().out == f"Removed KRaft controller 4 with directory id {ID}\n"
    assert main([*adding, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"controller": 4, "done": "added"}
    added = ("add_raft_voter", 4, DIRECTORY, [RaftVoterEndpoint("CONTROLLER", "::1", 9093)])
    assert admin.calls == [added, ("remove_raft_voter", 4, DIRECTORY), added]
