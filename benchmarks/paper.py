"""Claim: every table and verdict of docs/paper/README.md follows from the stored results of `lodekit reproduce all`.

The page is made again from docs/paper/results.json. Lines that it lacks are printed, and make the script fail. With
``--run`` the experiments are repeated first (about an hour on two cores), and the verdicts of the new run are counted.

    python benchmarks/paper.py [--run] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lodekit.paper.claims import RunResults, check_claims
from lodekit.paper.report import make_tables

FOLDER = Path(__file__).parents[1] / "docs" / "paper"


def read_results(path: Path) -> RunResults:
    return RunResults(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="repeat the experiments")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results, page = read_results(FOLDER / "results.json"), (FOLDER / "README.md").read_text(encoding="utf-8")
    claims = check_claims(results)
    lines = [f"| {claim.text} | {claim.status.replace('no', 'NO')} | {claim.evidence} |" for claim in claims]
    rows = [row for table in make_tables(results) for row in (table.columns, *table.rows)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    missing = [line for line in lines if line not in page]
    print("\n".join([f"{len(lines)} lines, {len(missing)} of them not on the page", *missing]))
    if missing:
        sys.exit(1)
    if options.run:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "lodekit", "reproduce", "all", "--out", folder]
            subprocess.run(command, check=True)
            claims = check_claims(read_results(Path(folder, "results.json")))
    counts = {status: sum(claim.status == status for claim in claims) for status in ("yes", "no", "tie", "open")}
    cells = [int(claim.evidence.split()[0]) for claim in claims if claim.evidence.endswith("cells")]
    print(", ".join(f"{status}: {count}" for status, count in counts.items()))
    if options.json:
        found = {"verdicts": counts, "cells": cells, "all_cells": sum(cells)}
        options.json.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
