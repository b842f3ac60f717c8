"""Claim: from a cold start, `lodekit inspect` takes less than 1.5 s and `lodekit fit` on 25 rows, with figures, 5 s.

Wall time of the installed command, the median of several runs, and what its largest parts cost by themselves.

    python benchmarks/cli.py [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COMMAND = str(Path(sys.executable).with_name("lodekit"))
HEATING = "f1' = -a*(f1-f2)+u; f2' = -b*(f2-f1)"


def seconds(arguments: list[str], folder: str, runs: int) -> float:
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="commands whose description contains this")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    python, fit = [sys.executable, "-c"], [COMMAND, "fit", "heating.toml", "heating.csv", "--quiet"]
    jobs = {
        "lodekit inspect (required: 1.5 s)": [COMMAND, "inspect", HEATING, "--param", "a,b"],
        "lodekit fit, 25 rows, figures and report (required: 5 s)": fit,
        "lodekit fit, 25 rows, report only": [*fit, "--no-figures"],
        "Python alone": [*python, "pass"],
        "import lodekit": [*python, "import lodekit"],
        "NumPy and the parts of SciPy": [*python, "import numpy, scipy.linalg, scipy.optimize"],
        "matplotlib": [*python, "import matplotlib.figure, matplotlib.backends.backend_agg"],
        "duckdb": [*python, "import duckdb"],
    }
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        span = ["--from", "-5", "--to", "5", "--n", "25", "--noise", "0.02", "--out", "heating.csv"]
        subprocess.run([COMMAND, "simulate", "heating", *span], cwd=folder, check=True)
        begin = [COMMAND, "init", HEATING, "--param", "a,b", "--out", "heating.toml"]
        subprocess.run(begin, cwd=folder, check=True, capture_output=True)
        for name, arguments in jobs.items():
            if options.only in name:
                results[name] = seconds(arguments, folder, options.runs)
                print(f"{results[name]:6.2f} s  {name}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
