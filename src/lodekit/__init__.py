"""lodekit turns linear ODE systems, written as text, into Gaussian processes whose every realization satisfies them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lodekit.errors import LodekitError
from lodekit.system import catalog
from lodekit.system.files import read_system_file
from lodekit.system.parameters import LogNormal, Normal, Parameter
from lodekit.system.system import System
from lodekit.version import __version__

_LAZY = {
    "LODEGP": "lodekit.model",
    "plan_experiment": "lodekit.results.experiment_design",
    "Observations": "lodekit.data.observations",
    "Statistics": "lodekit.data.statistics",
}


def __getattr__(name: str) -> Any:
    # The numeric half loads SciPy; whoever only analyses equations should not wait for it.
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'lodekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    # What is loaded when it is first asked for belongs to what can be asked for; what happens to be imported does not.
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "LODEGP",
    "LodekitError",
    "LogNormal",
    "Normal",
    "Observations",
    "Parameter",
    "Statistics",
    "System",
    "__version__",
    "catalog",
    "plan_experiment",
    "read_system_file",
]

if TYPE_CHECKING:
    from lodekit.data.observations import Observations
    from lodekit.data.statistics import Statistics
    from lodekit.model import LODEGP
    from lodekit.results.experiment_design import plan_experiment
