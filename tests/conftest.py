"""What holds for all tests: nothing random between two runs, and any order on request."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

# The same examples in every run, and none from an earlier one; slow machines are no failures.
settings.register_profile("lodekit", derandomize=True, database=None, deadline=None)
settings.load_profile("lodekit")

#: Files that take longest: they begin first, for a worker that began one last would be waited for.
LONG = (
    "tests/test_benchmarks.py",
    "tests/studio/test_page.py",
    "tests/paper/test_reproduction.py",
    "tests/test_gallery.py",
    "tests/results/certificate/test_certificate.py",
    "tests/test_site.py",
    "tests/test_scaling.py",
    "tests/cli/test_process.py",
    "tests/test_many_measurements.py",
    "tests/agreement/test_spectral.py",
    "tests/agreement/test_channels.py",
    "tests/cli/test_fitting.py",
    "tests/data/test_large.py",
    "tests/diagnostics/test_diagnosis.py",
    "tests/fitting/test_known_inputs.py",
    "tests/fitting/test_newton.py",
    "tests/test_report.py",
    "tests/cli/test_using.py",
    "tests/data/test_dask.py",
    "tests/test_release.py",
)


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
