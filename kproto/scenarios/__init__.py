"""The scenarios of four documents about Kafka's clients, each played by a group in virtual time.

    from kproto.scenarios import Parameters, find, scenarios

    scenario = find("S1-20")
    run = scenario.run(Parameters(client="sarama", rate=100))
    run.results["lost"], run.holds

Each scenario module covers a part of one document. A scenario states what the document says, in our words,
and plays it in a group whose outcome is recorded. The module `scenario` defines scenarios, `report` renders a
run as text, JSON or HTML, and `matrices` runs one situation for many clients and settings. The clients are
the models of `kproto.models` and kproto's own consumer; the cluster is the embedded broker. So each run
produces its own results; none of them is copied from the documents.
"""

from .scenario import Parameters, Scenario, ScenarioRun, find, scenarios

__all__ = ["Parameters", "Scenario", "ScenarioRun", "find", "scenarios"]
