"""Scenarios that replay four documents about Kafka's clients, in a simulated group and in virtual time.

A document is an engineer's description of a problem with a Kafka client. docs/lessons has a lesson for each
document, with the same number.

    from kproto.scenarios import Parameters, find, scenarios

    scenario = find("S1-20")
    run = scenario.run(Parameters(client="sarama", rate=100))
    run.results["lost"], run.holds

A scenario paraphrases a part of its document, plays it in a simulated group, and records the outcome.
Each module of scenarios covers a part of one lesson.

The module `scenario` defines scenarios, and `parameters` the parameters of their runs. `report` renders a run
as text, JSON or HTML. `matrices` runs one situation for many clients and settings.

The clients are the models of `kproto.models` and kproto's own consumer. The cluster is the embedded broker.
All results are computed, and none is copied from a document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_attributes
from .parameters import Parameters

if TYPE_CHECKING:
    from .scenario import Scenario as Scenario
    from .scenario import ScenarioRun as ScenarioRun
    from .scenario import find as find
    from .scenario import scenarios as scenarios

# `scenario` is imported at the first use of one of its names, because the command `kproto` usually needs only
# `parameters`.
#
# `__getattr__` is hidden from type checkers, which would otherwise accept any attribute of this module.
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__, dict.fromkeys(("Scenario", "ScenarioRun", "find", "scenarios"), ".scenario")
    )

__all__ = ["Parameters", "Scenario", "ScenarioRun", "find", "scenarios"]
