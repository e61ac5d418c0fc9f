"""The stories of four documents about Kafka's clients, each as a run of a group in virtual time.

    from kproto.scenarios import Parameters, find, scenarios

    found = find("S1-20")
    told = found.run(Parameters(client="sarama", rate=100))
    told.results["lost"], told.holds

A module tells one document: what is said there, in our words, and what comes out. `frame` says what a
scenario is; `teller` writes it for people; `matrices` runs many at once. The clients are the machines of
`kproto.models` and kproto's own consumer, the cluster is the embedded broker's: what comes out is what these
programs do, and not what somebody wrote down.
"""

from .scenario import Parameters, Scenario, ScenarioRun, find, scenarios

__all__ = ["Parameters", "Scenario", "ScenarioRun", "find", "scenarios"]
