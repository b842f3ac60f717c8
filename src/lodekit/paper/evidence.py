"""Which system do the data follow? The log evidence of the right one beside that of wrong ones, on the same data.

The paper proposes a search over systems as work to come; this is its first step: a few systems that a user could have
in mind, each fitted to the data, compared by their log evidence.
"""

from __future__ import annotations

from lodekit.model import LODEGP
from lodekit.paper.experiments import Experiment
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

__all__ = ["RIGHT", "compare_systems", "is_wrong", "rivals"]

#: What the system that the data come from is called.
RIGHT = "the system itself"
#: What begins so leaves an equation out: such a system is not wrong, it knows less.
_LESS = "no equation"
_PENDULUMS = "f1'' + 9.81/{0}*f1 - u/{0} = 0; f2'' + 9.81/{1}*f2 - u/{1} = 0"
_RIVALS = {
    "bipendulum": {
        "equal lengths": _PENDULUMS.format(1, 1),
        "lengths exchanged": _PENDULUMS.format(2, 1),
        "second pendulum free of the rod": "f1'' + 9.81*f1 - u = 0; f2'' + 9.81/2*f2 = 0",
        f"{_LESS} for the second": "f1'' + 9.81*f1 - u = 0",
    },
    "heating": {
        "no heat back": "f1' = -a*f1 + u; f2' = -b*(f2 - f1)",
        "equal rates": "f1' = -a*(f1 - f2) + u; f2' = -a*(f2 - f1)",
        "object loses heat": "f1' = -a*(f1 - f2) + u; f2' = -b*f2",
        f"{_LESS} for the object": "f1' = -a*(f1 - f2) + u",
    },
    "three_tank": {
        "pipes exchanged": "f1' = u2; f2' = u1 + u2; f3' = u1",
        "first pipe into two tanks": "f1' = u1; f2' = u1; f3' = u2",
        "second pipe into all tanks": "f1' = u1 + u2; f2' = u1 + u2; f3' = u2",
        f"{_LESS} for the middle": "f1' = u1; f3' = u2",
    },
}


def rivals(experiment: Experiment) -> dict[str, System]:
    """Return systems of the same channels that the data do not follow, or that say less than is known, by name."""
    found = {}
    for name, text in _RIVALS[experiment.name].items():
        letters = [letter for letter in experiment.system.parameters if f"-{letter}*" in text]
        parameters = {letter: Parameter(positive=True) for letter in letters}
        found[name] = System(text, parameters=parameters, channels=experiment.system.channels)
    return found


def is_wrong(name: str) -> bool:
    """Return whether what a system of this name says contradicts the data."""
    return name != RIGHT and not name.startswith(_LESS)


def compare_systems(experiment: Experiment, seed: int) -> dict[str, float]:
    """Return the log evidence of each system on an `experiment`'s noisy data of a `seed`, by name."""
    table, systems = experiment.data(seed), {RIGHT: experiment.system, **rivals(experiment)}
    return {
        name: float(LODEGP(system, noise="channel", random_state=seed).fit(experiment.times, table).log_evidence_)
        for name, system in systems.items()
    }
