"""The scenarios of four documents about Kafka's clients, each played by a group in virtual time.

    from kproto.scenarios import Parameters, find, scenarios

    scenario = find("S1-20")
    run = scenario.run(Parameters(client="sarama", rate=100))
    run.results["lost"], run.holds

Each module covers one document: what the document says, in our words, and what comes out when the scenario
runs. `frame` defines a scenario, `report` renders a run as text, JSON or HTML, `matrices` runs many scenarios
together. The clients are the models of `kproto.models` and kproto's own consumer; the cluster is the embedded
broker. The results are therefore what these programs do, not what was written down.
"""

from .scenario import Parameters, Scenario, ScenarioRun, find, scenarios

__all__ = ["Parameters", "Scenario", "ScenarioRun", "find", "scenarios"]
