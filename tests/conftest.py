"""What holds for all tests: nothing random between two runs, and any order on request."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
from collections.abc import Generator

import pytest
from hypothesis import settings

# The same examples in every run, and none from an earlier one; slow machines are no failures.
settings.register_profile("lodekit", derandomize=True, database=None, deadline=None)
settings.load_profile("lodekit")

#: Files that take longest: they begin first, for a worker that began one last would be waited for.
LONG = (
    "tests/paper/test_reproduction.py",
    "tests/studio/test_page.py",
    "tests/test_gallery.py",
    "tests/test_benchmarks.py",
    "tests/test_site.py",
    "tests/test_scaling.py",
    "tests/cli/test_process.py",
    "tests/cli/test_fitting.py",
    "tests/model/test_open_modes.py",
    "tests/test_many_measurements.py",
    "tests/results/certificate/test_certificate.py",
    "tests/test_validation.py",
    "tests/agreement/test_spectral.py",
    "tests/agreement/test_lamp.py",
    "tests/agreement/test_growth_and_clusters.py",
    "tests/test_report.py",
    "tests/agreement/test_channels.py",
    "tests/agreement/test_numerics.py",
    "tests/data/test_large.py",
    "tests/diagnostics/test_diagnosis.py",
    "tests/fitting/test_known_inputs.py",
    "tests/fitting/test_newton.py",
    "tests/model/test_inputs.py",
    "tests/cli/test_using.py",
    "tests/data/test_dask.py",
    "tests/test_release.py",
)

#: Packages that Python compiles for seconds in a new environment. Of two workers, the second begins with the last one,
#: so that each compiles half of them and reads the others.
LARGE = (
    *("torch", "gpytorch", "botorch", "sympy", "scipy.signal", "sklearn.model_selection", "control", "mpmath"),
    *("matplotlib.pyplot", "pandas", "polars", "streamlit", "playwright.sync_api", "distributed", "dask.dataframe"),
)


def pytest_configure() -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    for name in () if worker is None else LARGE[:: -1 if worker == "gw1" else 1]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Nothing is released during the collection, and searching for it would take a third of its time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests in each, in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is None:
        ranks = {name: rank for rank, name in enumerate(LONG)}
        items.sort(key=lambda item: ranks.get(item.nodeid.split("::")[0], len(LONG)))
        return
    generator = random.Random(seed)
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.split("::")[0], []).append(item)
    # Files stay whole, for what their tests share is made once a file.
    for group in files.values():
        generator.shuffle(group)
    items[:] = [item for name in generator.sample(list(files), len(files)) for item in files[name]]
