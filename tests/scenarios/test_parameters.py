"""Each parameter that a scenario accepts has an effect. A scenario that accepts no parameter says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest

from kproto.cli import main
from kproto.errors import ConfigError
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.models.index import model_name
from kproto.scenarios import Parameters, Scenario, ScenarioRun, find, report, scenarios
from kproto.scenarios.parameters import PARAMETERS
from kproto.scenarios.scenario import clients, join
from kproto.testing.world import Consumer, ModelClient, World
from kproto.testing.world.trace import exchanges

# Maps each parameter to a value that most scenarios do not use. `changed` selects another value for the
# scenarios that already use this value.
CHANGED: dict[str, Any] = {
    "client": "java",
    "members": 5,
    "partitions": 7,
    "session_timeout_ms": 11_000,
    "heartbeat_ms": 300,
    "assignor": "roundrobin",
    "static": True,
    "commit": "before",
    "reset": "earliest",
    "refresh_ms": 3_100,
    "rate": 30,
    "grow_at_ms": 6_100,
    "join_after_ms": 20,
    "rejoin_after_ms": 2_500,
    "polls": 6,
    "poll_timeout_ms": 700,
}
# The scenarios that simulate many clusters, or one for long. A test runs a scenario twice, which takes from
# 0.2 s to several seconds for these scenarios.
SLOW = {"S0-15", "S3-7", "S3-19g", "S4-2"}
SLOW |= {f"S1-{n}" for n in (1, 2, 3, 4, 5, 8, 9, 11, 14, 16, 17, 20, 21, 22, 24, 25, 26, 27)}
SLOW |= {f"S2-{n}" for n in (17, 18, 19, 22, 23, 25, 26, 31, 39, 42, 43, 46)}


def requests(run: ScenarioRun, kind: type[Any]) -> Iterator[tuple[World, str, int, Any]]:
    """Yield (world, client, time, request) for each request of this class."""
    for world in run.worlds:
        for exchange in exchanges(world.entries):
            if isinstance(exchange.request, kind):
                yield world, exchange.client, exchange.asked_at, exchange.request


def joins(run: ScenarioRun) -> list[JoinGroupRequest]:
    return [request for *_, request in requests(run, JoinGroupRequest)]


def kinds(run: ScenarioRun) -> set[str]:
    """Return the names of the clients that joined a group in the run."""
    joined = {(id(world), name) for world, name, *_ in requests(run, JoinGroupRequest)}
    members = [world.clients[name] for world in run.worlds for key, name in joined if key == id(world)]
    return {
        model_name(getattr(member.model, "__name__", "")) if isinstance(member, ModelClient) else "kproto"
        for member in members
        if isinstance(member, ModelClient | Consumer)
    }


def shows_interval(run: ScenarioRun, kind: type[Any], interval_ms: int) -> bool:
    """Return whether a client sends two successive requests of this class at about this interval."""
    times: dict[tuple[int, str], list[int]] = {}
    for world, name, at, _ in requests(run, kind):
        times.setdefault((id(world), name), []).append(at)
    gaps = [later - earlier for each in times.values() for earlier, later in pairwise(each)]
    # How late a request may be, in ms. librdkafka sends a heartbeat only when its main thread wakes, at least
    # once a second. sarama's heartbeats wait for the fetches on the same connection, for up to 500 ms each.
    delays = {"librdkafka": 1_050, "sarama": 550}
    latest = interval_ms + max(delays.get(client, 0.4 * interval_ms) for client in kinds(run))
    return any(interval_ms <= gap <= latest for gap in gaps)


def most_members(run: ScenarioRun) -> int:
    members: dict[int, set[str]] = {}
    for world, name, *_ in requests(run, JoinGroupRequest):
        members.setdefault(id(world), set()).add(name)
    return max(len(names) for names in members.values())


def partitions(run: ScenarioRun) -> set[int]:
    topics = [world.arguments["topics"] for world in run.worlds]
    return {next(iter(each.values())) for each in topics}


def journal(run: ScenarioRun) -> list[object]:
    """Return the run's results, and the time, client and kind of each entry of its worlds' traces.

    The journal also contains the arguments of each call of the application.
    """
    entries = [entry for world in run.worlds for entry in world.entries]
    calls = [repr(entry.data) if entry.kind == "event" else "" for entry in entries]
    return [run.results, [(entry.at, entry.who, entry.kind) for entry in entries], calls]


VISIBLE: dict[str, Callable[[ScenarioRun], bool]] = {
    "client": lambda run: kinds(run) == {run.parameters.client},
    "members": lambda run: most_members(run) >= 5,
    "partitions": lambda run: partitions(run) == {7},
    "session_timeout_ms": lambda run: {join.session_timeout_ms for join in joins(run)} == {11_000},
    "heartbeat_ms": lambda run: shows_interval(run, HeartbeatRequest, 300),
    "assignor": lambda run: (
        {tuple(p.name for p in join.protocols) for join in joins(run)} == {("roundrobin",)}
    ),
    "static": lambda run: all(join.group_instance_id for join in joins(run)),
}


def changed(story: Scenario, name: str) -> tuple[Parameters, Parameters]:
    """Return the default parameters of a scenario, and parameters in which the value of `name` is changed.

    A scenario that already uses the value in `CHANGED` gets a different one: the scenarios of S4, which use
    Java's model, get sarama's; S1-2, which uses the policy earliest, gets latest.

    With `join_after_ms`, S0-1 and S0-2 get more polls. With the default number, they would end before the
    join begins, and the join's time would not be visible.
    """
    value: Any = "sarama" if name == "client" and story.id.startswith("S4") else CHANGED[name]
    if name == "reset" and story.id == "S1-2":
        value = "latest"
    polls = {"polls": 20} if story.id in ("S0-1", "S0-2") and name == "join_after_ms" else {}
    return Parameters(**polls), Parameters(**polls, **{name: value})


def taken() -> Iterator[Any]:
    """Yield each scenario with each of its parameters. The quick tests run one parameter per scenario."""
    for number, story in enumerate(scenarios()):
        for place, name in enumerate(story.takes):
            is_quick = story.id not in SLOW and place == number % len(story.takes)
            marks = [] if is_quick else [pytest.mark.thorough]
            yield pytest.param(story, name, marks=marks, id=f"{story.id} {PARAMETERS[name].option}")


@pytest.mark.parametrize(("story", "name"), list(taken()))
def test_a_changed_parameter_is_visible_in_the_run(story: Scenario, name: str) -> None:
    """If the parameter is in `VISIBLE`, the run shows its new value, for example in requests. For any other
    parameter, the journals of runs with the old and the new value differ.
    """
    before, after = changed(story, name)
    run = story.run(after, drawn=True)
    if name in VISIBLE:
        assert VISIBLE[name](run)
    else:
        assert journal(run) != journal(story.run(before, drawn=True))


def played_by_any_client() -> Iterator[Any]:
    """Yield each scenario of the documents that has a `client` parameter, once for each client."""
    scenario_ids = [story.id for story in scenarios() if "client" in story.takes and story.id[:2] != "S4"]
    for number, story_id in enumerate(scenario_ids):
        for place, client in enumerate(clients()):
            is_quick = story_id not in SLOW and place == number % len(clients())
            yield pytest.param(story_id, client, marks=[] if is_quick else [pytest.mark.thorough])


@pytest.mark.parametrize(("story_id", "client"), list(played_by_any_client()))
def test_a_story_about_any_client_is_played_by_each_client(story_id: str, client: str) -> None:
    parameters = Parameters(client=client)
    if (story_id, client) in (("S1-26", "sarama"), ("S1-26", "kafka-go")):
        with pytest.raises(ConfigError, match="use a client that can subscribe to patterns"):
            find(story_id).run(parameters)
        return
    assert find(story_id).run(parameters).claims


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_is_taken_by_a_story(name: str) -> None:
    assert [story.id for story in scenarios() if name in story.takes]


def test_a_story_takes_parameters_or_says_why_not() -> None:
    assert [story.id for story in scenarios() if bool(story.takes) == bool(story.fixed)] == []


def test_the_table_has_exactly_the_fields_of_the_parameters() -> None:
    assert [*PARAMETERS, "seed"] == [field.name for field in fields(Parameters)]


def test_a_claim_that_holds_only_as_written_is_not_printed_as_a_fact() -> None:
    story = find("S2-47")
    run = story.run(Parameters(commit="before"))
    lines = "\n".join(report.text(story, run))
    assert "does not hold with --commit before: commit before processing" in lines
    assert "does not hold with --commit before: " in report.page(story, run)
    assert not run.holds


def test_a_changed_run_names_the_written_values_that_it_replaced() -> None:
    def play(run: ScenarioRun) -> None:
        for interval_ms in (500, 1_700):
            world = run.world({"t": 2})
            for name in run.names("a", "b", "c"):
                join(world, name, "java", heartbeat_ms=interval_ms)

    run = replace(find("S2-46"), play=play).run(Parameters(heartbeat_ms=700, members=4, static=True))
    assert report.changes(run) == (
        "Changed: --members 4 (as written: 3), --heartbeat 700ms (as written: 500ms, 1700ms), --static (as "
        "written: no). The text above describes the scenario as written."
    )


def test_the_reason_of_a_story_as_written_is_marked_if_a_claim_does_not_hold() -> None:
    story = find("S2-13")
    written, changed = (story.run(Parameters(heartbeat_ms=ms)).because for ms in (None, 300))
    assert written == changed
    missed = find("S1-12").run(Parameters(heartbeat_ms=5_900))
    assert missed.because[0].startswith("(as written) Close closes both channels.")


def test_a_value_with_which_an_event_never_comes_is_rejected() -> None:
    def play(run: ScenarioRun) -> None:
        next(iter([]))

    story = replace(find("S2-13"), play=play)
    with pytest.raises(ConfigError, match="S2-13 does not reach its end with --heartbeat 400ms"):
        story.run(Parameters(heartbeat_ms=400))
    with pytest.raises(StopIteration):
        story.run()


def test_a_story_waits_until_a_slow_refresh_shows_the_growth() -> None:
    assert find("S1-3").run(Parameters(refresh_ms=30_000)).holds


def test_a_run_as_written_has_no_changes() -> None:
    run = find("S2-13").run()
    assert (run.changes, run.replaced) == ("", {})


def test_a_claim_of_a_changed_story_does_not_change_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "S2-47", "--commit", "before"]) == 0
    assert "NO   does not hold with --commit before" in capsys.readouterr().out


def test_a_shorter_session_timeout_shortens_the_heartbeat_interval() -> None:
    run = find("S2-14").run(Parameters(session_timeout_ms=1_000), drawn=True)
    assert shows_interval(run, HeartbeatRequest, 333)


def test_an_expiry_waits_for_a_longer_session_timeout() -> None:
    assert find("S2-31").run(Parameters(session_timeout_ms=40_000)).holds


@pytest.mark.parametrize(("name", "value"), [("commit", "never"), ("reset", "none"), ("members", 0)])
def test_a_value_outside_the_limits_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        Parameters(**{name: value})


def test_the_command_lists_the_stories_of_each_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "parameters"]) == 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("--")] == [
        parameter.option for parameter in PARAMETERS.values()
    ]
    assert "none: S2-1 to S2-6 (it reads options, and runs no group)" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["scenario", "parameters", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"parameter": "--reset", "scenarios": ["S1-2", "S1-20"]} in rows
