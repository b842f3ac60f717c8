"""lodekit turns linear ODE systems, written as text, into Gaussian processes whose every realization satisfies them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lodekit.version import __version__

#: The module of each public name. It is imported at the first use of the name: SciPy, for example, takes a second to
#: load, and the analysis of equations does not need it.
_MODULES = {
    "LODEGP": "lodekit.model",
    "LodekitError": "lodekit.errors",
    "LogNormal": "lodekit.system.parameters",
    "Normal": "lodekit.system.parameters",
    "Observations": "lodekit.data.observations",
    "Parameter": "lodekit.system.parameters",
    "Statistics": "lodekit.data.statistics",
    "System": "lodekit.system.system",
    "catalog": "lodekit.system.catalog",
    "errors": "lodekit.errors",
    "fit_file": "lodekit.workflow.pipeline",
    "plan_experiment": "lodekit.results.experiment_design",
    "read_system_file": "lodekit.system.files",
    "report": "lodekit.report",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module = import_module(_MODULES[name])
        return getattr(module, name, module)
    raise AttributeError(f"module 'lodekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    # Lazily loaded names are listed; imported submodules are not.
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
    "fit_file",
    "plan_experiment",
    "read_system_file",
]

if TYPE_CHECKING:
    from lodekit.data.observations import Observations
    from lodekit.data.statistics import Statistics
    from lodekit.errors import LodekitError
    from lodekit.model import LODEGP
    from lodekit.results.experiment_design import plan_experiment
    from lodekit.system import catalog
    from lodekit.system.files import read_system_file
    from lodekit.system.parameters import LogNormal, Normal, Parameter
    from lodekit.system.system import System
    from lodekit.workflow.pipeline import fit_file
