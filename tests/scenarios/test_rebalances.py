"""The claims of the scenarios about rebalances hold for every client and for other timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kproto.cli import main
from kproto.scenarios import Parameters, find
from kproto.scenarios.scenario import clients, scenarios

ALL = [scenario.id for scenario in scenarios() if scenario.id.startswith("S4-")]
TIMEOUTS = [
    Parameters(session_timeout_ms=1_000),
    Parameters(session_timeout_ms=30_000, heartbeat_ms=3_000),
    Parameters(heartbeat_ms=5_900),
]


ERROR = "its application sees the error"
# sarama-cluster and kafka-go have no static members.
NO_STATIC_MEMBERS = ["the first process is fenced", ERROR, "the second process has all partitions"]
UNMET_IN_S4_3 = {"sarama-cluster": NO_STATIC_MEMBERS, "kafka-go": NO_STATIC_MEMBERS}


def pairs(values: Sequence[object]) -> list[Any]:
    """Return each pair of an element of `values` and a scenario.

    The quick tests run each scenario with one value. They skip S4-2 and S4-7, which simulate many clusters.
    """
    return [
        pytest.param(
            value,
            id,
            marks=[] if (n - m) % len(values) == 1 and id not in ("S4-2", "S4-7") else pytest.mark.thorough,
        )
        for n, id in enumerate(ALL)
        for m, value in enumerate(values)
    ]


@pytest.mark.parametrize(("client", "scenario_id"), pairs(clients()))
def test_the_claims_hold_for_every_client(client: str, scenario_id: str) -> None:
    run = find(scenario_id).run(Parameters(client=client))
    unmet = UNMET_IN_S4_3.get(client, []) if scenario_id == "S4-3" else []
    assert [claim.text for claim in run.claims if not claim.holds] == unmet
    assert run.results


@pytest.mark.parametrize(("parameters", "scenario_id"), pairs(TIMEOUTS))
def test_the_claims_hold_for_other_timeouts(parameters: Parameters, scenario_id: str) -> None:
    run = find(scenario_id).run(parameters)
    assert [claim.text for claim in run.claims if not claim.holds] == []


@pytest.mark.parametrize(
    ("client", "error"), [("librdkafka", "_FATAL"), ("sarama", "KError(82)"), ("kproto", "Fenced")]
)
def test_a_fenced_member_gets_an_error_and_owns_nothing(client: str, error: str) -> None:
    """After the fatal error, librdkafka calls no rebalance callback. Nevertheless, rd_kafka_assignment
    returns no partition.
    """
    results = find("S4-3").run(Parameters(client=client)).results
    assert results["its application sees"] == [error]
    assert results["owners"] == {"m1": 0, "copy": 4}


def test_partitions_of_a_killed_member_stand_still_for_a_session_timeout() -> None:
    texts = [
        str(find("S4-4").run(Parameters(session_timeout_ms=ms)).results["longest standstill"])
        for ms in (3_000, 20_000)
    ]
    short, long = (int(text.removesuffix(" ms")) for text in texts)
    assert (short // 1_000, long // 1_000) in {(2, 19), (3, 20), (2, 20), (3, 19)}


def test_the_rebalances_of_each_protocol_are_counted() -> None:
    results = find("S4-6").run().results
    assert results["range"] == "6 of 6 revoked, 1 rebalance"
    assert results["cooperative-sticky"] == "2 of 6 revoked, 2 rebalances"


def test_without_an_instance_id_a_restart_causes_a_rebalance() -> None:
    static, dynamic = (
        find("S4-1").run(Parameters(static=static)).results["rebalances after the kill"]
        for static in (True, False)
    )
    assert static == "none"
    assert "sent nothing for 6000 ms (killed)" in str(dynamic)


def test_a_commit_before_processing_loses_and_one_after_it_doubles() -> None:
    before, after = (find("S4-8").run(Parameters(commit=order)).results for order in ("before", "after"))
    assert before == {"committed before processing": "5 records lost, 0 processed twice"}
    assert after == {"committed after processing": "0 records lost, 5 processed twice"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "S4-4 --heartbeat 7s",
            "--heartbeat=7000 is not allowed; less than the session timeout of 6000 ms",
        ),
        (
            "S4-6 --client kafka-go --assignor sticky",
            "--assignor='sticky' is not allowed; allowed: range, roundrobin",
        ),
        ("S4-6 --client librdkafka --assignor sticky", "allowed: range, roundrobin, cooperative-sticky"),
        (
            "S4-8 --members 3",
            "S4-8 takes --client, --session-timeout, --heartbeat, --assignor, --static, --commit",
        ),
        ("S4-4 --session-timeout 10ms", "1,000 to 1,800,000 milliseconds"),
    ],
)
def test_parameters_that_do_not_fit_are_rejected(
    words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", *words.split()]) == 2
    assert why in capsys.readouterr().err
