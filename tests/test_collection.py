"""Every process collects the same tests in the same order, whenever it runs; only so can workers share them."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Another second, hour and day, also for what compressed files say of themselves.
LATER = "import sys, time; now = time.time; time.time = lambda: now() + 1e5; import pytest; sys.exit(pytest.main())"


def begin(folder: Path, *start: str, **environment: str) -> subprocess.Popen[str]:
    folder.mkdir()
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    return subprocess.Popen(
        [sys.executable, *start, *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_collect_the_same(tmp_path: Path) -> None:
    first = begin(tmp_path / "one", "-m", "pytest", PYTHONHASHSEED="1", TZ="UTC", COLUMNS="80")
    second = begin(tmp_path / "two", "-c", LATER, PYTHONHASHSEED="2", TZ="Asia/Tokyo", COLUMNS="200")
    texts = [process.communicate()[0] for process in (first, second)]
    assert first.returncode == second.returncode == 0, texts
    here, there = ([line for line in text.splitlines() if "::" in line] for text in texts)
    assert len(here) > 1000
    assert [pair for pair in zip_longest(here, there) if pair[0] != pair[1]] == []
