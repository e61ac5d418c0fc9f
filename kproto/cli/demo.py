"""`kproto demo`: a pipeline of broker, consumer group and Spark on real data, in one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import ConfigError
from .arguments import Subparsers, client_security, command_config, positive, seconds, write


def add(commands: Subparsers) -> None:
    demo = commands.add_parser(
        "demo",
        help="send a year of flights through broker, group and Spark, and check all records",
        description="Produce New York's flights of 2013 to a topic, read them with a group, in which a "
        "member joins and a member is killed, while the topic grows; aggregate them in Spark, and "
        "compare all totals with pandas. Exit code 1 if a record is missing or a total differs.",
    )
    demo.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="the Kafka cluster to use (default: an embedded broker)"
    )
    demo.add_argument("--topic", default="flights", help="the topic to create and use (default: %(default)s)")
    demo.add_argument(
        "--records",
        type=positive,
        metavar="N",
        help="produce only the first N departures (default: all 336,776)",
    )
    demo.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed, which selects the killed member and the time (default: %(default)s)",
    )
    demo.add_argument(
        "--eager", action="store_true", help="use the eager protocol: every rebalance revokes all partitions"
    )
    demo.add_argument("--no-spark", action="store_true", help="skip the Spark query, which needs Java")
    demo.add_argument(
        "--seconds",
        type=seconds,
        default=30.0,
        metavar="S",
        help="the time in seconds in which the records are produced (default: %(default)s)",
    )
    demo.add_argument(
        "--picture",
        type=Path,
        default=Path("kproto-demo.html"),
        metavar="FILE",
        help="the HTML file for the group's timeline (default: %(default)s)",
    )
    command_config(demo)
    demo.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    if options.command_config is not None and options.bootstrap is None:
        raise ConfigError(
            "--command-config", str(options.command_config), "allowed only together with --bootstrap"
        )
    if options.command_config is not None:
        # Read the client settings before the demo starts, so that an invalid file is reported immediately.
        client_security(options.command_config)
    from ..demo.script import DemoPlan, run_demo

    # Write an empty picture before the demo starts, so that a file that is not writable is reported
    # immediately.
    write("--picture", options.picture, "")
    plan = DemoPlan(
        bootstrap=options.bootstrap,
        topic=options.topic,
        records=options.records,
        seed=options.seed,
        eager=options.eager,
        spark=not options.no_spark,
        seconds=options.seconds,
        picture=options.picture,
        command_config=options.command_config,
    )
    outcome = run_demo(plan)
    print("\n".join([*outcome.checks, *outcome.history]))
    return 1 if outcome.faults else 0
