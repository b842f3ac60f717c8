"""Claim: from a cold start, `lodekit inspect` takes less than 1.5 s and `lodekit fit` on 25 rows, with figures, 5 s.

Wall time of the installed command, the median of several runs, and what its largest parts cost by themselves. The CPU
times of `lodekit --version` and of a first fit are compared with those of importing NumPy and SciPy: at most 1.5 times
as long as `import numpy`, and at most twice as long as `import scipy.linalg, scipy.optimize`. Each number is the
smallest of several alternating runs, and byte code is cached for all of them.

    python benchmarks/cli.py [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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


FIRST_FIT = """
import math, random
import lodekit as lk
noise = random.Random(0)
times = [0.2 * k for k in range(25)]
x = [math.sin(t) + noise.gauss(0, 0.02) for t in times]
u = [math.cos(t) + math.sin(t) / 2 + noise.gauss(0, 0.02) for t in times]
lk.LODEGP(lk.System("x' = -a*x + u", parameters=["a"]), random_state=0).fit(times, {"x": x, "u": u})
"""
COLD_STARTS = {
    "import numpy": ["-c", "import numpy"],
    "lodekit --version": ["-m", "lodekit", "--version"],
    "import scipy.linalg, scipy.optimize": ["-c", "import scipy.linalg, scipy.optimize"],
    "first fit, 25 rows": ["-c", FIRST_FIT],
}


def cpu_seconds(arguments: list[str], folder: str) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold_starts(folder: str, runs: int) -> dict[str, float]:
    """CPU times, and their ratios; the first of several rounds, which writes byte code, is left out."""
    rounds = [{name: cpu_seconds(job, folder) for name, job in COLD_STARTS.items()} for _ in range(runs + (runs > 1))]
    numpy, version, scipy, fit = (min(one[name] for one in rounds[-runs:]) for name in COLD_STARTS)
    ratios = {
        "lodekit --version / import numpy (required: 1.5)": version / numpy,
        "first fit / import scipy.linalg, scipy.optimize (required: 2)": fit / scipy,
    }
    return dict(zip(COLD_STARTS, (numpy, version, scipy, fit), strict=True)) | ratios


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
        for name, value in cold_starts(folder, options.runs).items():
            results[name] = value
            print(f"{value:6.2f}    {name}" if "/" in name else f"{value:6.2f} s  {name}, CPU time")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
