"""`kproto scenario` finds scenarios, writes pages and drawings, and prints tables of many runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from kproto.cli import main
from kproto.scenarios import matrices, race
from kproto.scenarios.matrices import Loss, StandstillRow
from kproto.scenarios.offset_minus_1000 import Request
from kproto.scenarios.parameters import PARAMETERS, Parameters


@pytest.mark.parametrize(("option", "start"), [("--html", "<!doctype html>"), ("--svg", "<svg")])
def test_a_written_file_is_named_with_the_title_of_its_scenario(
    option: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "S3-1", "--json"]) == 0
    title = json.loads(capsys.readouterr().out)["title"]
    file = tmp_path / "story"
    assert main(["scenario", "s3-1", option, str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: {title}\n"
    assert file.read_text().startswith(start)


def test_a_list_has_the_scenarios_of_a_document_or_with_a_word_in_their_title(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed: dict[str, list[dict[str, str]]] = {}
    for name in ("S3", "s3", "seek"):
        assert main(["scenario", name, "--json"]) == 0
        listed[name] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert listed["S3"] == listed["s3"]
    assert {story["id"].partition("-")[0] for story in listed["S3"]} == {"S3"}
    assert all("seek" in story["title"].lower() for story in listed["seek"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("S3-999", "did you mean S3-"),
        ("parametres", "did you mean parameters? "),
        ("qqqqqq", "there are "),
    ],
)
def test_an_unknown_scenario_is_rejected_with_similar_names(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", name]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "loss, stop-the-world, race, and parameters" in error
    assert ("did you mean" in error) == (name != "qqqqqq")


def paragraphs(text: str) -> list[str]:
    """Return the lines of a text, with each wrapped paragraph as one line."""
    return text.replace("\n    ", " ").splitlines()


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[Loss]:
    """The results of `kproto scenario loss`. A test may append to them."""
    rows = [
        Loss("kafka-go", "latest", False, 5_000, 520, 400, 3, None),
        Loss("kproto", "latest", True, 5_000, 520, 0, 0, 2_819),
        Loss("java", "latest", True, 5_000, 520, 61, 0, 300),
    ]

    def results(parameters: Parameters) -> list[Loss]:
        return rows

    monkeypatch.setattr(matrices, "losses", results)
    monkeypatch.setenv("COLUMNS", "400")
    return rows


def test_the_losses_are_a_table_with_progress_and_assumptions(
    losses: list[Loss], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "loss"]) == 0
    printed = capsys.readouterr()
    head, _, *rows, _, formula, _, assumed = paragraphs(printed.out)
    cells = [re.split("  +", line.strip()) for line in (head, *rows)]
    assert cells == [
        ["client", "growth", "reset", "seen after", "written", "lost", "formula", "read twice"],
        ["kafka-go", "does not look", "latest", "never", "520", "400", "520", "3"],
        ["kproto", "watches", "latest", "2.8 s", "520", "0", "0", "0"],
        ["java", "watches", "latest", "0.3 s", "520", "61", "60", "0"],
    ]
    assert formula.startswith("formula: rate x new partitions x time")
    for part in ("to 4 after 7.3 s", "100 records per second", "refreshed every 5 s", "is sent every 0.5 s"):
        assert part in assumed
    assert printed.err.splitlines() == [
        "kafka-go does not look, latest: done",
        "kproto watches, latest: done",
        "java watches, latest: done",
    ]


def test_the_losses_assume_the_given_parameters(
    losses: list[Loss], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "loss", "--grow-at", "9s", "--rate", "20/s", "--refresh", "2s"]) == 0
    assumed = paragraphs(capsys.readouterr().out)[-1]
    for part in ("to 4 after 9 s", "20 records per second", "refreshed every 2 s"):
        assert part in assumed


def test_the_losses_as_json_have_no_table(losses: list[Loss], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "loss", "--json"]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [(row["client"], row["lost"], row["formula"]) for row in rows] == [
        ("kafka-go", 400, 520),
        ("kproto", 0, 0),
        ("java", 61, 60),
    ]
    assert printed.err == ""


@pytest.mark.parametrize(("lost", "doubled"), [(1, 0), (0, 1)])
def test_only_a_loss_or_repetition_of_kproto_fails_the_command(
    losses: list[Loss], lost: int, doubled: int
) -> None:
    losses.insert(0, Loss("kproto", "earliest", True, 5_000, 520, lost, doubled, 900))
    assert main(["scenario", "loss"]) == 1


def test_the_stopped_partitions_are_a_table_with_progress_and_assumptions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compared: list[tuple[Sequence[int], int]] = []

    def standstills(sizes: Sequence[int], *, seed: int) -> list[StandstillRow]:
        compared.append((sizes, seed))
        return [StandstillRow("eager", 3, 6, 5, 215, 212.6)]

    monkeypatch.setattr(matrices, "standstills", standstills)
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["scenario", "stop-the-world"]) == 0
    printed = capsys.readouterr()
    head, _, row, _, note = paragraphs(printed.out)
    assert [re.split("  +", line.strip()) for line in (head, row)] == [
        ["members", "protocol", "partitions", "stood still", "longest", "mean", "in all"],
        ["3", "eager", "6", "5", "215 ms", "213 ms", "1.1 s"],
    ]
    assert "every 500 ms; the application of each member needs 200 ms" in note
    assert printed.err == "3 members, eager: done\n"
    assert main(["scenario", "stop-the-world", "--members", "4", "--seed", "5", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "protocol": "eager",
        "members": 3,
        "partitions": 6,
        "stood_still": 5,
        "longest_ms": 215,
        "mean_ms": 212.6,
    }
    assert printed.err == ""
    assert compared == [((3, 10, 100), 7), ((4,), 5)]


def test_the_programs_of_the_race_are_a_table_or_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [("A: joins", Request(2, 5, "ok")), ("B: sleeps", Request(None, None, "failed"))]
    seeds: list[int] = []

    def races(seed: int) -> list[tuple[str, Request]]:
        seeds.append(seed)
        return results

    monkeypatch.setattr(race, "races", races)
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["scenario", "race", "--seed", "5"]) == 0
    head, _, *rows, empty, note = capsys.readouterr().out.splitlines()
    assert [re.split("  +", line.strip()) for line in (head, *rows)] == [
        ["program", "assignment", "first message", "seek"],
        ["A: joins", results[0][1].printed, "5", "ok"],
        ["B: sleeps", "none", "none", "failed"],
    ]
    assert (empty, note) == ("", "assignment, first message and seek are those of the program's last request")
    assert main(["scenario", "race", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"program": "A: joins", "assigned": 2, "first": 5, "seek": "ok", "prints": []}
    assert (second["program"], second["first"]) == ("B: sleeps", None)
    assert seeds == [5, 7]


def test_the_parameters_name_the_scenarios_that_take_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "parameters", "--json"]) == 0
    stories = {
        row["parameter"]: row["scenarios"] for row in map(json.loads, capsys.readouterr().out.splitlines())
    }
    assert main(["scenario", "--json"]) == 0
    takes = {row["id"]: row["takes"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert all(words[-1] == "--seed" for words in takes.values())
    assert list(stories) == [parameter.option for parameter in PARAMETERS.values()]
    for option, ids in stories.items():
        assert ids == [id_ for id_, words in takes.items() if option in words]
    assert main(["scenario", "parameters"]) == 0
    assert capsys.readouterr().out.count("\n--") >= len(stories) - 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("S1-20 --client nobody", "--client='nobody' is not allowed; allowed: java, java-2.6"),
        (
            "S1 --html x.html",
            "--html='x.html' is not allowed; allowed only for a single scenario, such as kproto",
        ),
        ("loss --svg x.svg", "--svg='x.svg' is not allowed; allowed only for a single scenario, such as"),
        ("race --requests", "--requests='True' is not allowed; allowed only for a single scenario"),
        ("race --members 3", "--members='3' is not allowed; race takes"),
    ],
)
def test_parameters_and_forms_that_a_scenario_does_not_have_are_rejected(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_requests_of_a_scenario_are_printed_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "S3-1", "--requests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("JoinGroup" in line for line in lines)
