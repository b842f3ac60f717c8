"""A short form of `benchmarks/trust_input.py`: mutated input is read or refused, killed writes leave whole files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.limits import PATIENCE

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trust_input.py"
#: Texts have a test of their own beside this one.
COUNTS = {"texts": 10, "tables": 100, "models": 100, "kills": 4}


def test_mutated_input_and_killed_writes_do_no_harm(tmp_path: Path) -> None:
    options = [word for name, count in COUNTS.items() for word in (f"--{name}", str(count))]
    done = subprocess.run(
        [sys.executable, SCRIPT, *options, "--seed", "7", "--json", tmp_path / "found.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    for name, count in COUNTS.items():
        row = found[name]
        assert row["offences"] == 0
        assert row["survived" if name == "kills" else "refused"] <= count
        assert name == "kills" or row.get("read", 0) + row["refused"] == count
    # Mutations are of both kinds: some do no harm, and some are noticed.
    for name in ("tables", "models"):
        assert found[name]["read"] > 5
        assert found[name]["refused"] > 5
    assert found["kills"]["survived"] == COUNTS["kills"]
