"""The scenarios of four documents about Kafka's clients, each played by a group in virtual time.

    from kproto.scenarios import Parameters, find, scenarios

    scenario = find("S1-20")
    run = scenario.run(Parameters(client="sarama", rate=100))
    run.results["lost"], run.holds

Each scenario module covers a part of one document. A scenario states what the document says, in our words,
and plays it in a group whose outcome is recorded. The module `scenario` defines scenarios, `parameters` has
the parameters of their runs, `report` renders a run as text, JSON or HTML, and `matrices` runs one situation
for many clients and settings. The clients are the models of `kproto.models` and kproto's own consumer; the
cluster is the embedded broker. A run computes all of its results; none of them is copied from the documents.
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

# The module `scenario` is imported at the first use of one of its names: the command `kproto` needs only
# `parameters` on each start. `__getattr__` is hidden from type checkers, because they accept every attribute
# of a module that has it.
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__, dict.fromkeys(("Scenario", "ScenarioRun", "find", "scenarios"), ".scenario")
    )

__all__ = ["Parameters", "Scenario", "ScenarioRun", "find", "scenarios"]
