"""Every process collects the same tests, whenever and wherever it runs; only so can workers share them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONG

ROOT = Path(__file__).parents[1]
#: Another second, hour and day, also for what compressed files say of themselves.
LATER = "import sys, time; now = time.time; time.time = lambda: now() + 1e5; import pytest; sys.exit(pytest.main())"


def test_another_process_collects_the_same(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """With another clock, hash seed, zone, width and temporary folder than this one."""
    option = request.config.option
    if option.keyword or option.markexpr or any("::" in name for name in request.config.args):
        pytest.skip("only some of the tests of a file were collected here")
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    others = {"PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo", "COLUMNS": "200", "TMPDIR": str(tmp_path)}
    # Plugins that happen to be installed are no matter of ours.
    others["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    here = sorted(item.nodeid for item in request.session.items if item.nodeid.startswith("tests/"))
    files = sorted({name.split("::")[0] for name in here})
    # Without a look for examples in docstrings, of which tests have none.
    options = ("-o", "addopts=", "--import-mode=importlib", "--collect-only", "-q", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-c", LATER, *options, *files],
        cwd=ROOT,
        env={**os.environ, **others},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    there = sorted(line for line in done.stdout.splitlines() if "::" in line)
    assert sorted(set(here) ^ set(there)) == []
    assert len(here) == len(there)


def test_files_that_begin_first_are_there() -> None:
    assert [name for name in LONG if not (ROOT / name).exists()] == []
    assert len(set(LONG)) == len(LONG)
