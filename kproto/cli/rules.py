"""`kproto rules`: the protocol's rules, the state-machine cells that apply them, and their tests."""

from __future__ import annotations

import argparse
import sys
from textwrap import wrap

from .arguments import Subparsers


def add(commands: Subparsers) -> None:
    rules = commands.add_parser(
        "rules",
        help="list the numbered rules, with their state-machine cells and tests",
        description="Without arguments: print one line per rule. With rule numbers: print their texts, "
        "the cells of the state machines that apply them, and the tests that check them.",
    )
    rules.add_argument("rule", nargs="*", metavar="RULE", help="the number of a rule, such as R64")
    rules.add_argument(
        "--state", metavar="STATE", help="list only rules that apply in this state, such as Stable"
    )
    rules.add_argument(
        "--event", metavar="EVENT", help="list only rules that apply to this event, such as JoinGroup"
    )
    rules.add_argument(
        "--search", metavar="WORDS", help="list only rules whose text contains all these words"
    )
    rules.set_defaults(run=_rules)


def _rules(options: argparse.Namespace) -> int:
    from ..errors import ConfigError
    from ..inspect import rules

    known = {number.lower(): number for number in rules.numbers()}
    unknown = next((number for number in options.rule if number.lower() not in known), None)
    if unknown is not None:
        raise ConfigError("RULE", unknown, f"`kproto rules` lists the {len(known)} numbers")
    if options.state is not None and options.state.lower() not in [
        name.lower() for name in rules.state_names()
    ]:
        raise ConfigError("--state", options.state, f"allowed: {', '.join(rules.state_names())}")
    if options.event is not None and not rules.is_event(options.event):
        raise ConfigError(
            "--event", options.event, "allowed: the name of an event; `kproto show coordinator` lists them"
        )
    filters = (options.state, options.event, options.search)
    if options.rule and filters != (None, None, None):
        raise ConfigError("RULE", options.rule[0], "allowed only without --state, --event and --search")
    if options.rule:
        print("\n\n".join(_rule_description(known[number.lower()]) for number in options.rule))
        return 0
    filtered = options.state is not None or options.event is not None
    numbers = rules.numbers_in(options.state, options.event) if filtered else rules.numbers()
    texts, words = rules.definitions(), (options.search or "").lower().split()
    matching = [number for number in numbers if all(word in texts.get(number, "").lower() for word in words)]
    if not numbers:
        print("kproto rules: no rule applies to this state and event", file=sys.stderr)
    elif not matching:
        print("kproto rules: no text of a rule contains all these words", file=sys.stderr)
    for number in matching:
        print(f"{number:<5} {_first_sentence(number)}")
    return 0


def _first_sentence(number: str) -> str:
    """Return the first sentence of a rule's text, or a note if the text is not installed."""
    from ..inspect import rules

    text = " ".join(rules.definitions().get(number, "").split())
    return text.partition(". ")[0].rstrip(".") + "." if text else "(its text is in the source distribution)"


def _rule_description(number: str) -> str:
    """Return a rule's text, the cells of the state machines' tables that keep it, and its tests' source."""
    from ..inspect import rules

    text = " ".join(rules.definitions().get(number, "(the text is in the source distribution)").split())
    lines = wrap(f"{number}  {text}", 100, subsequent_indent=" " * (len(number) + 2))
    states_by_event: dict[tuple[str, str], list[str]] = {}
    for cell in rules.cells().get(number, ()):
        states_by_event.setdefault((cell.machine, cell.kind), []).append(cell.state)
    lines += ["", "Cells"] if states_by_event else []
    lines += [
        f"  {machine}: {event} in {', '.join(states)}" for (machine, event), states in states_by_event.items()
    ]
    for test in rules.tests().get(number, ()):
        lines += ["", f"{test.path}::{test.name}", "", test.source]
    return "\n".join(lines)
