"""Run client scenarios, and return the members' requests and events without details that vary between runs.

`KPROTO_PLAYS=FOLDER` writes the recorded requests and events to a folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from consumer import Admin, Producer
from tests.conformance.client_scenarios import SCENARIOS, DrivenMember, Scenario, Stage
from tests.conformance.recording_proxy import RecordingProxy, request_lines

RUNS = count(1)
# The maximum number of attempts at a scenario. Events within one millisecond may come in any order, even in
# two runs of the original, so an attempt without the expected order is repeated.
TRIES = 3
# Maps a client to the APIs that are not compared. librdkafka looks up its coordinator on each new connection,
# and its number of connections varies.
LEFT_OUT = {"librdkafka": ("FindCoordinator",)}
# Maps (client, scenario) to the prefix of events that are not compared, because the original reports them at
# random. In sarama-cluster, a Go select either delivers a notification or ends the consumer.
TOLD_OR_NOT = {("sarama-cluster", "close-while-joining"): "assigned "}
# Clients whose model moves the same partitions as the original, because it iterates over hash tables in the
# same order.
SAME_ONES_MOVE = ("java", "java-2.6")


def run_scenario(
    client: str,
    order: list[str],
    scenario: str,
    proxy: RecordingProxy,
    operators: tuple[Admin, Producer],
    acts: Scenario | None = None,
    bootstrap: str = "",
) -> dict[str, dict[str, list[str]]]:
    """Run the scenario `acts`, by default `SCENARIOS[scenario]`. Return the requests and events of each
    member.

    The members connect to `bootstrap`, or by default to the proxy.
    """
    cluster, producer = operators

    def start(name: str, client_id: str, group: str, conf: Mapping[str, Any]) -> DrivenMember:
        return DrivenMember(
            name, [*order, bootstrap or f"127.0.0.1:{proxy.port}", client_id, group, json.dumps(conf)]
        )

    stage = Stage(start, proxy, cluster, producer, f"{os.getpid()}x{next(RUNS)}")
    cluster.create_topics({stage.topic: 2})
    try:
        (acts or SCENARIOS[scenario][0])(stage)
    finally:
        for member in stage.members:
            if member.process.poll() is None:
                member.kill()
    names = sorted({member.name for member in stage.members})
    return {
        name: {
            "said": normalize(
                request_lines(proxy.requests(stage.name(name)), LEFT_OUT.get(client, ())),
                stage,
                client,
                scenario,
            ),
            "heard": normalize(
                [line for member in stage.members_named(name) for line in member.events()],
                stage,
                client,
                scenario,
            ),
            "errors": [line for member in stage.members_named(name) for line in member.errors()],
        }
        for name in names
    }


def normalize(lines: list[str], stage: Stage, client: str, scenario: str) -> list[str]:
    """Remove the names and events that differ between runs.

    In the scenario "cooperative", the partition that moves is random, so `p` replaces each partition number.
    The numbers remain for the clients in SAME_ONES_MOVE: their models move the original's partition.
    """
    lot = TOLD_OR_NOT.get((client, scenario))
    kept_lines = [
        line.replace(f"-{stage.run}", "") for line in lines if lot is None or not line.startswith(lot)
    ]
    if scenario == "cooperative" and client not in SAME_ONES_MOVE:
        return [re.sub(r":[01]\b", ":p", line) for line in kept_lines]
    return kept_lines


def save_recordings(client: str, scenario: str, **recordings: object) -> None:
    folder = os.environ.get("KPROTO_PLAYS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{client}-{scenario}.json").write_text(json.dumps(recordings, indent=1))
