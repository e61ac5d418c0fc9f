"""`kproto scenario`: list, run and draw the documentation's scenarios, optionally with other parameters."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..scenarios.parameters import PARAMETERS, Parameter, Parameters, check_taken
from .arguments import Subparsers, duration, positive, positive_duration, rate, whole_number, write

if TYPE_CHECKING:
    from ..scenarios import Scenario

# The kind of a parameter -> how argparse parses and describes it.
_KINDS: dict[str, dict[str, Any]] = {
    "time": {"type": positive_duration, "metavar": "TIME"},
    "time from 0": {"type": duration, "metavar": "TIME"},
    "count": {"type": positive, "metavar": "N"},
    "rate": {"type": rate, "metavar": "N/s"},
    "name": {},
    "switch": {"action": argparse.BooleanOptionalAction},
}

# Name of a set of scenarios that run together -> the parameters that the set accepts.
_MATRIX_PARAMETERS = {
    "loss": ("client", "reset", "refresh_ms", "rate", "grow_at_ms"),
    "stop-the-world": ("members",),
    "race": (),
}
# The error if a scenario's parameter is passed to a command that only lists scenarios.
ONE_SCENARIO = "a single scenario, such as S1-20, takes parameters"
FORMS = ("--requests", "--html", "--svg")  # The output forms of a single scenario.


def add(commands: Subparsers) -> None:
    scenario = commands.add_parser(
        "scenario",
        help="run scenarios of groups and their clients in virtual time, mostly in well under a second",
        description="Without ID: list all scenarios. With the first part of their ids (S1) or a "
        "word of their titles (sarama): list these scenarios. With an id (S1-20): run the scenario, "
        "and print what happened, the result and the reason. `loss`: how many records "
        "clients lose when a topic grows. `stop-the-world`: how long partitions have no "
        "owner when a member joins, eager and cooperative. `race`: the result of a "
        "program that calls subscribe and assign, for each moment at which its group may "
        "finish joining. `parameters`: which scenarios take which parameter. Exit code 1 if a claim of "
        "a scenario does not hold, unless parameters changed the scenario.",
        epilog="Times are written as 400ms, 4s or 10m, rates as 100/s. `kproto scenario parameters` "
        "lists the scenarios that take a parameter. If a scenario rejects one, the error lists those that "
        "it takes. A claim that holds only for the scenario as written is printed as `does not hold "
        "with` the changed parameters.",
    )
    scenario.add_argument(
        "name", nargs="?", metavar="ID", help="an id or a name, such as S1-20, loss or stop-the-world"
    )
    for parameter in PARAMETERS.values():
        _add_parameter(scenario, parameter)
    scenario.add_argument(
        "--seed", type=whole_number, default=7, metavar="N", help="random seed (default: 7)"
    )
    form = scenario.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, for programs")
    form.add_argument(
        "--requests", action="store_true", help="print the requests and responses, one per line"
    )
    form.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with the group's timeline and its requests"
    )
    form.add_argument("--svg", type=Path, metavar="FILE", help="write a drawing of the requests")
    scenario.set_defaults(run=_scenario)


def _add_parameter(command: argparse.ArgumentParser, parameter: Parameter) -> None:
    arguments = dict(_KINDS[parameter.kind])
    if parameter.choices is not None:
        arguments["choices"] = parameter.choices
    elif parameter.metavar is not None:
        arguments["metavar"] = parameter.metavar
    command.add_argument(parameter.option, help=parameter.help, **arguments)


def _scenario(options: argparse.Namespace) -> int:
    try:
        return _run_named(options)
    except ConfigError as error:
        option = PARAMETERS[error.option].option if error.option in PARAMETERS else error.option
        raise ConfigError(option, error.value, error.allowed) from None


def _run_named(options: argparse.Namespace) -> int:
    """Run the scenario or the set that ID names, or list the scenarios that match ID.

    Without ID, list all scenarios. If ID is "parameters", list the parameters.
    """
    from ..scenarios import scenarios

    name = options.name
    if name is None:
        return _list_scenarios(options, list(scenarios()))
    if name in _MATRIX_PARAMETERS:
        _check_options(options, name, _MATRIX_PARAMETERS[name], FORMS)
        return _MATRIX_COMMANDS[name](options)
    if name == "parameters":
        return _list_parameters(options)
    exact = [scenario for scenario in scenarios() if scenario.id.lower() == name.lower()]
    if exact:
        return _print_scenario(options, exact[0])
    word = name.lower()
    matches = [
        scenario
        for scenario in scenarios()
        if scenario.id.lower().startswith(f"{word}-") or word in scenario.title.lower()
    ]
    if not matches:
        raise ConfigError("scenario", name, _hint_for_unknown(name))
    return _list_scenarios(options, matches)


def _hint_for_unknown(name: str) -> str:
    """Return a hint with the known names that are similar to an unknown name."""
    from ..scenarios import scenarios

    ids = [scenario.id for scenario in scenarios()]
    names = {id_.lower(): id_ for id_ in (*ids, *_MATRIX_PARAMETERS, "parameters")}
    similar = difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.7)
    hint = f"did you mean {' or '.join(names[match] for match in similar)}? " if similar else ""
    documents = ", ".join(dict.fromkeys(id_.partition("-")[0] for id_ in ids))
    all_names = f"there are {len(ids)} scenarios in the documents {documents} (`kproto scenario` lists them)"
    return f"{hint}{all_names}, {', '.join(_MATRIX_PARAMETERS)}, and parameters"


def _check_options(
    options: argparse.Namespace,
    name: str,
    takes: Sequence[str],
    unsupported_forms: Sequence[str] = (),
    fixed: str = "",
) -> None:
    """Raise ConfigError for a parameter or an output form that the scenario does not support."""
    from ..scenarios.scenario import clients

    parameters = _parameters(options)
    check_taken(name, parameters, takes, fixed)
    if parameters.client is not None and parameters.client not in clients():
        raise ConfigError("--client", parameters.client, f"allowed: {', '.join(clients())}")
    for option in unsupported_forms:
        if value := getattr(options, option[2:]):
            raise ConfigError(
                option,
                str(value),
                f"allowed only for a single scenario, such as kproto scenario S1-20 {option} ...",
            )


def _parameters(options: argparse.Namespace) -> Parameters:
    """Return the parameters that the options set; the others are None."""
    values = {
        name: getattr(options, parameter.option[2:].replace("-", "_"))
        for name, parameter in PARAMETERS.items()
    }
    return Parameters(**values, seed=options.seed)


def _list_scenarios(options: argparse.Namespace, listed: Sequence[Scenario]) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import report

    _check_options(options, "a list", (), FORMS, ONE_SCENARIO)
    for scenario in listed:
        if options.json:
            takes = [*(PARAMETERS[name].option for name in scenario.takes), "--seed"]
            print(one_line({"id": scenario.id, "title": scenario.title, "takes": takes}))
        else:
            print("\n".join(report.fitted([report.line(scenario)], _width())))
    return 0


def _list_parameters(options: argparse.Namespace) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import report, scenarios

    _check_options(options, "a list", (), FORMS, ONE_SCENARIO)
    if options.json:
        for name, parameter in PARAMETERS.items():
            ids = [scenario.id for scenario in scenarios() if name in scenario.takes]
            print(one_line({"parameter": parameter.option, "scenarios": ids}))
    else:
        print("\n".join(report.parameter_lines(_width())))
    return 0


def _width() -> int | None:
    """Return the width of the terminal (or COLUMNS), or None if the width is unknown."""
    return shutil.get_terminal_size((0, 0)).columns or None


def _print_note(text: str) -> None:
    """Print a paragraph below a table, wrapped at the width of the terminal."""
    from ..scenarios import report

    print("\n".join(["", *report.paragraph(text, _width())]))


def _print_scenario(options: argparse.Namespace, scenario: Scenario) -> int:
    from ..messages.json_form import one_line
    from ..scenarios import report

    _check_options(options, scenario.id, scenario.takes, fixed=scenario.fixed)
    run = scenario.run(_parameters(options), drawn=bool(options.html or options.svg or options.requests))
    if options.json:
        print(one_line(report.json(scenario, run)))
    elif options.html:
        write("--html", options.html, report.page(scenario, run))
        print(f"{options.html}: {scenario.title}")
    elif options.svg:
        write("--svg", options.svg, report.svg(run))
        print(f"{options.svg}: {scenario.title}")
    elif options.requests:
        print("\n".join(report.requests(run)))
    else:
        print("\n".join(report.text(scenario, run, _width())))
    return 0 if run.holds or run.changes else 1


def _loss(options: argparse.Namespace) -> int:
    """Print the records that clients lose when a topic grows.

    Return 1 if kproto loses a record or reads one twice, otherwise 0.
    """
    from ..messages.json_form import one_line
    from ..scenarios import matrices, report

    rows: list[tuple[object, ...]] = []
    is_kproto_lossless = True
    for loss in matrices.losses(_parameters(options)):
        is_kproto_lossless = is_kproto_lossless and (loss.client != "kproto" or loss.lost + loss.doubled == 0)
        detected = "never" if loss.discovered_after_ms is None else f"{loss.discovered_after_ms / 1000:.1f} s"
        if options.json:
            figures = {name: getattr(loss, name) for name in loss.__slots__}
            print(one_line({**figures, "formula": loss.formula}), flush=True)
        else:
            print(f"{loss.client} {loss.detection}, {loss.reset}: done", file=sys.stderr)
        rows.append(
            (
                loss.client,
                loss.detection,
                loss.reset,
                detected,
                loss.written,
                loss.lost,
                loss.formula,
                loss.doubled,
            )
        )
    if not options.json:
        head = ("client", "growth", "reset", "seen after", "written", "lost", "formula", "read twice")
        print("\n".join(report.grid(head, rows, _width())))
        _print_note(
            "formula: rate x new partitions x time until they were assigned; 0 if new partitions are "
            "read from their beginning; everything if they are never detected"
        )
        parameters = _parameters(options)
        _print_note(
            "assumed: one member; its topic grows from 2 partitions to 4 after "
            f"{(parameters.grow_at_ms or matrices.GROW_AT_MS) / 1000:g} s; "
            f"{parameters.rate or matrices.RATE} records per second are written to each new partition; "
            f"metadata is refreshed every {(parameters.refresh_ms or matrices.REFRESH_MS) / 1000:g} s; "
            f"a heartbeat is sent every {matrices.HEARTBEAT_MS / 1000:g} s"
        )
    return 0 if is_kproto_lossless else 1


def _stop_the_world(options: argparse.Namespace) -> int:
    """Print how long partitions have no owner when a member joins, for each group size and protocol."""
    from ..messages.json_form import one_line
    from ..scenarios import matrices, report

    sizes = (options.members,) if options.members else (3, 10, 100)
    rows: list[tuple[object, ...]] = []
    for standstill in matrices.standstills(sizes, seed=options.seed):
        if options.json:
            print(one_line({name: getattr(standstill, name) for name in standstill.__slots__}))
        else:
            print(f"{standstill.members} members, {standstill.protocol}: done", file=sys.stderr)
        times = (
            f"{standstill.longest_ms} ms",
            f"{standstill.mean_ms:.0f} ms",
            f"{standstill.stood_still * standstill.mean_ms / 1000:.1f} s",
        )
        rows.append(
            (standstill.members, standstill.protocol, standstill.partitions, standstill.stood_still, *times)
        )
    if not options.json:
        head = ("members", "protocol", "partitions", "stood still", "longest", "mean", "in all")
        print("\n".join(report.grid(head, rows, _width())))
        _print_note(
            "assumed: one member joins a group with two partitions per member; a heartbeat is sent "
            f"every {matrices.HEARTBEAT_MS} ms; the application of each member needs "
            f"{matrices.CALLBACK_MS} ms to release partitions; the network takes 1 to 5 ms"
        )
    return 0


def _race(options: argparse.Namespace) -> int:
    """Print the results of programs that call subscribe and assign, one row for each program."""
    from ..messages.json_form import one_line
    from ..scenarios import race, report

    rows: list[tuple[object, ...]] = []
    for name, race_result in race.races(options.seed):
        if options.json:
            print(
                one_line(
                    {"program": name, **{part: getattr(race_result, part) for part in race_result.__slots__}}
                )
            )
        rows.append(
            (
                name,
                race_result.printed,
                "none" if race_result.first is None else race_result.first,
                race_result.seek,
            )
        )
    if not options.json:
        head = ("program", "assignment", "first message", "seek")
        print("\n".join(report.grid(head, rows, _width())))
        _print_note("assignment, first message and seek are those of the program's last request")
    return 0


_MATRIX_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "loss": _loss,
    "stop-the-world": _stop_the_world,
    "race": _race,
}
