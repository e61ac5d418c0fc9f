"""The claims of each scenario hold, equal seeds give equal runs, and no text of a scenario is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproto.cli import main
from kproto.errors import ConfigError
from kproto.scenarios import Parameters, Scenario, find, report, scenarios
from kproto.scenarios.matrices import loss, stop_the_world
from kproto.scenarios.scenario import MODULES, ScenarioRun, _order
from kproto.testing.world import World

ALL = scenarios()
MOST_LINES = 140
# The maximum number of turns (events) in all simulated clusters of a scenario. This many turns take about
# 1 s of CPU.
TURNS = 20_000
# The scenarios that take 0.2 to 5 s of CPU each.
SLOW = {"S0-15", "S4-2", "S2-17", "S2-18", "S2-19", "S2-39", "S2-42", "S2-43", "S2-46", "S3-7", "S3-19a"}
SLOW |= {f"S1-{n}" for n in (1, 2, 5, 9, 11, 14, 16, 17, 21, 22, 24, 25, 26, 27)}
# The scenarios that take 0.1 s of CPU or more. Quicker tests also check the claims of these scenarios.
PLAYED_ELSEWHERE = {"S1-20", "S1-23", "S2-31"}


def _param(scenario: Scenario) -> object:
    marks = [pytest.mark.thorough] if scenario.id in SLOW | PLAYED_ELSEWHERE else []
    return pytest.param(scenario, marks=marks, id=scenario.id)


@pytest.mark.parametrize("scenario", [_param(scenario) for scenario in ALL])
def test_every_claim_holds_and_the_report_fits_a_terminal(
    scenario: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    run = scenario.run()
    assert [claim.text for claim in run.claims if not claim.holds] == []
    assert run.claims
    assert sum(act.stage.turns for act in run.acts) <= TURNS
    lines = report.text(scenario, run)
    assert [line for line in lines if len(line) > 80] == []
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if "[['" in line or "[('" in line or "('" in line] == []
    assert caplog.messages == []  # A scenario logs nothing.


def test_a_report_shows_the_first_of_many_runs_and_counts_repeated_moments() -> None:
    orders = "\n".join(report.text(find("S0-15"), find("S0-15").run()))
    assert "Run 4 of 80" in orders
    assert "Run 5 of 80" not in orders
    assert "76 runs more: --json and --html have them." in orders
    threw = [line for line in report.text(find("S2-32"), find("S2-32").run()) if "poll raises" in line]
    assert [line.split("poll")[0].split()[-1] for line in threw] == ["a", "more;"]


def test_every_text_of_a_scenario_is_present() -> None:
    for scenario in ALL:
        for part in (scenario.title, scenario.says, scenario.given, scenario.when, scenario.then):
            assert part, scenario.id
        assert scenario.id[:2] in MODULES, scenario.id


def test_ids_are_sorted_by_number_then_letter() -> None:
    ids = ["S3-19b", "S0-10", "S0-2", "S3-19a"]
    assert sorted(ids, key=_order) == ["S0-2", "S0-10", "S3-19a", "S3-19b"]


def test_the_same_seed_gives_the_same_run() -> None:
    reports = [report.json(scenario, scenario.run()) for scenario in [find("S1-23")] * 2]
    assert reports[0] == reports[1]


def test_find_ignores_case_and_an_unknown_id_lists_the_known_ones() -> None:
    assert find("s1-20").id == "S1-20"
    with pytest.raises(ConfigError, match="S1-20"):
        find("S1-999")


def test_an_unsupported_parameter_is_rejected() -> None:
    with pytest.raises(ConfigError, match="S1-20 takes --client"):
        find("S1-20").run(Parameters(polls=3))


def test_a_run_without_claims_does_not_hold() -> None:
    assert not ScenarioRun(Parameters()).holds


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("S0-1 --polls 100000", "--polls=100000 is not allowed; 1 to 1,000"),
        ("S1-2 --refresh 10h", "--refresh=36000000 is not allowed; 10 to 3,600,000 milliseconds"),
        ("loss --rate 10000/s --refresh 10m", "at most 207/s for these 1,203 s: that is 500,000 records"),
        ("S0-1 --polls 11 --poll-timeout 1m", "--polls=11 is not allowed; at most 10 polls of 60 s"),
        ("S1-20 --rate 10000/s --refresh 10m", "--rate='10000/s' is not allowed; at most 207/s for these"),
        ("S1-20 --grow-at 1ms", "--grow-at='1ms' is not allowed; 24ms or later: before, sarama has no"),
        ("stop-the-world --members 10000", "--members=10000 is not allowed; 1 to 200"),
    ],
)
def test_parameters_that_would_run_too_long_are_rejected(
    words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", *words.split()]) == 2
    assert why in capsys.readouterr().err


def test_the_claims_follow_the_chosen_client() -> None:
    run = find("S1-2").run(Parameters(client="sarama-cluster"))
    assert (run.holds, run.results["new partitions seen after"]) == (True, "never")


@pytest.mark.parametrize("id", [pytest.param("S1-16", marks=pytest.mark.thorough), "S1-20"])
def test_growth_seen_before_the_first_record_loses_nothing(id: str) -> None:
    run = find(id).run(Parameters(rate=1, refresh_ms=50))
    assert (run.holds, run.results["lost"]) == (True, 0)


@pytest.mark.parametrize(
    "id",
    ["S1-20", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("S1-16", "S1-22", "S1-25"))],
)
def test_a_run_lasts_until_a_slow_refresh_completes(id: str) -> None:
    assert find(id).run(Parameters(refresh_ms=20_000)).holds


def test_a_changed_outcome_has_its_own_reason() -> None:
    good, bad = (find("S0-1").run(Parameters(polls=polls)).because for polls in (4, 20))
    assert good != bad


def test_a_longer_refresh_loses_more() -> None:
    lost = [
        loss("librdkafka", refresh_ms=ms, rate=30, after_ms=6_000, settle_ms=1_000).lost
        for ms in (1_000, 5_000)
    ]
    assert 0 < lost[0] < lost[1]


# How many of 2,600 records the original clients lost on a real Kafka, with a metadata refresh every 5 s. A
# tuple of five numbers contains the results of five runs. A tuple of two numbers contains the median and the
# maximum of five runs.
MEASURED = {
    "java": (106, 224, 784, 924, 1_010),
    "java-2.6": (536, 852),
    "sarama": (212, 623, 1_244, 1_304, 1_567),
    "librdkafka": (492, 502, 546, 556, 642),
    "kafka-go": (524, 628),
}


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, marks=[] if client == "librdkafka" else [pytest.mark.thorough])
        for client in MEASURED
    ],
)
def test_a_model_can_lose_as_much_as_its_original_did(client: str) -> None:
    """If the topic gets partitions at `grow_at`, the model loses about as many records as the real client.

    `MEASURED` contains the real client's numbers; the model is compared with the run that lost the most.
    """
    grow_at = {"java": 5_200, "java-2.6": 6_000}.get(client, 7_300)
    assert abs(loss(client, grow_at_ms=grow_at).lost - MEASURED[client][-1]) <= 130


def test_a_client_that_does_not_detect_new_partitions_loses_all_their_records() -> None:
    growth = loss("kafka-go", watch=False, after_ms=6_000, settle_ms=1_000)
    assert growth.lost == growth.written == 1_200


@pytest.mark.thorough
@pytest.mark.parametrize("client", MEASURED)
def test_the_losses_of_the_originals_are_within_those_of_the_models(client: str) -> None:
    """Runs of the model differ in the time at which the topic grows. Runs of sarama also differ in the delay
    of the join, which determines the time between sarama's metadata refresh and its check for new partitions.
    """
    joins_ms = (500, 3_000) if client == "sarama" else (0,)
    runs = sorted(
        loss(
            client,
            grow_at_ms=join_ms + 5_200 + 1_100 * phase,
            world=World({"t": 2}, {"group.initial.rebalance.delay.ms": join_ms}, seed=phase, trace=False),
        ).lost
        for join_ms in joins_ms
        for phase in range(5)
    )
    measured = MEASURED[client]
    assert runs[0] - 130 <= measured[0]
    assert measured[-1] <= runs[-1] + 130
    assert abs(runs[len(runs) // 2] - measured[(len(measured) - 1) // 2]) <= 400


def test_eager_stops_all_partitions_and_cooperative_only_those_that_move() -> None:
    eager, cooperative = (stop_the_world(3, protocol) for protocol in ("eager", "cooperative"))
    assert eager.stood_still == eager.partitions == 6
    assert cooperative.stood_still == 1


# -- the command `kproto scenario`


def test_the_list_has_one_line_per_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [scenario.id for scenario in ALL]
    assert max(map(len, lines)) <= 120


def test_the_list_is_filtered_by_document_or_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "s0"]) == 0
    assert {line.partition("-")[0] for line in capsys.readouterr().out.splitlines()} == {"S0"}
    assert main(["scenario", "sarama-cluster", "--json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["id"] for entry in entries if "sarama-cluster" not in entry["title"]] == []
    assert len(entries) >= 2


def test_loss_prints_the_measured_and_the_predicted_loss(capsys: pytest.CaptureFixture[str]) -> None:
    words = "scenario loss --client librdkafka --refresh 2s --rate 50/s --grow-at 3s --json"
    assert main(words.split()) == 0
    latest, earliest = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert 0 < latest["formula"] <= latest["lost"] <= latest["formula"] + 50
    assert earliest["formula"] == earliest["lost"] == 0


def test_stop_the_world_takes_a_number_of_members(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "stop-the-world", "--members", "2", "--json"]) == 0
    eager, cooperative = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert eager["stood_still"] == eager["partitions"] == 4
    assert cooperative["stood_still"] == 1


def test_a_report_has_moments_results_and_claims(capsys: pytest.CaptureFixture[str]) -> None:
    words = "scenario S1-20 --client librdkafka --refresh 2s --rate 50/s --grow-at 9s --reset latest"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert "The document says:" in out
    assert "9.000 s  operator  the topic grows" in out
    assert "yes  records are lost" in out
    assert "Who owned what" in out


def test_a_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "S1-23", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["results"]["lost with kproto"] == 0
    assert result["holds"] is True


def test_a_report_as_an_html_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "S1-23", "--html", str(tmp_path / "story.html")]) == 0
    page = (tmp_path / "story.html").read_text()
    assert "<svg" in page
    assert "<td>lost with kproto<td>0</tr>" in page
    assert "Run 1 of 2, librdkafka" in page


def test_a_page_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "S2-1", "--html", str(tmp_path / "no" / "story.html")]) == 2
    assert "--html" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("S1-20 --refresh 5", "400ms, 4s, 10m"),
        ("S1-20 --rate many", "100/s"),
        ("S1-20 --client nobody", "--client='nobody' is not allowed; allowed: java, java-2.6"),
        ("S1-20 --refresh 0s", "a time above 0"),
        ("S1-20 --seed many", "not a whole number"),
        ("S1-20 --polls 0", "is not a whole number of at least 1"),
        (
            "S1-13 --refresh 3s",
            "--refresh='3s' is not allowed; S1-13 takes --client, --session-timeout, --heartbeat, "
            "--commit, --seed; only scenarios in which a topic grows",
        ),
        ("S2-1 --heartbeat 3s", "S2-1 takes --seed; it reads options, and runs no group"),
        ("S120", "did you mean S1-20"),
        ("parameter", "did you mean parameters"),
        ("stop-the-wrld", "did you mean stop-the-world"),
        ("nothing-like-it", "scenarios in the documents S0, S1, S2, S3"),
        ("loss --members 3", "loss takes --client, --reset, --refresh, --rate, --grow-at, --seed"),
        ("loss --client nobody", "allowed: java, java-2.6"),
        ("loss --html x.html", "--html='x.html' is not allowed; allowed only for a single scenario"),
        ("stop-the-world --rate 3/s", "stop-the-world takes --members, --seed"),
        ("--client sarama", "a list takes --seed"),
        ("S1 --svg x.svg", "--svg='x.svg' is not allowed; allowed only for a single scenario"),
        ("S9-1", "did you mean S"),
        ("S1-23 --polls 3", "--polls='3' is not allowed; S1-23 takes --client, --session-timeout"),
        (
            "S2-36 --members 1",
            "--members=1 is not allowed; at least 2, the number of members that the scenario itself starts",
        ),
        ("S1-1 --assignor sticky", "--assignor='sticky' is not allowed; allowed: range, roundrobin"),
        ("S1-2 --client kafka-go --static", "kafka-go does not support static members"),
        ("S2-31 --heartbeat 10s", "--heartbeat=10000 is not allowed; less than the session timeout"),
        ("parameters --client sarama", "a list takes --seed; a single scenario, such as S1-20, takes"),
    ],
)
def test_wrong_arguments_are_rejected(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(["scenario", *words.split()])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_the_list_as_json_names_the_parameters_of_each_scenario(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["scenario", "S1", "--json"]) == 0
    assert all(json.loads(line)["takes"][-1] == "--seed" for line in capsys.readouterr().out.splitlines())


def test_a_table_states_its_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--client kproto --reset latest --rate 20/s --refresh 3s --grow-at 9s"
    assert main(["scenario", "loss", *words.split()]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for part in ("to 4 after 9 s", "20 records per second", "refreshed every 3 s", "is sent every 0.5 s"):
        assert part in output


@pytest.mark.parametrize(
    ("client", "why"),
    [
        ("sarama", "Two tickers"),
        pytest.param("kproto", "the member joins again", marks=pytest.mark.thorough),
        pytest.param("kafka-go", "the watcher asks", marks=pytest.mark.thorough),
    ],
)
def test_the_reason_is_that_of_the_chosen_client(
    client: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "S1-2", "--client", client]) == 0
    assert why in " ".join(capsys.readouterr().out.split())
