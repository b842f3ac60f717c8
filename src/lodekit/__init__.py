"""lodekit turns linear ODE systems, written as text, into Gaussian processes whose every realization satisfies them."""

from lodekit.errors import LodekitError
from lodekit.system import catalog
from lodekit.system.files import read_system_file
from lodekit.system.parameters import Parameter
from lodekit.system.system import System

__all__ = ["LodekitError", "Parameter", "System", "__version__", "catalog", "read_system_file"]

__version__ = "0.1.0"
