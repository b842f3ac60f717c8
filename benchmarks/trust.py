"""What can be trusted: numbers, units, calibration, input. One command for all, with counts that fit into 15 minutes.

    python benchmarks/trust.py [PART ...] [--jobs N] [--json FILE] [--docs docs/trust.md]

Parts: evidences, channels, fits, torture (`trust_numerics.py` says what is right), units (`units.py`), calibration
(`calibration.py`, random plants), input (`trust_input.py`: fuzz, and writes that are killed). Each prints what came
out, and lists what must not be; the exit status is one then. `--json` keeps the figures, beside those of other parts
that the file has already; `--docs` puts them into the tables of a page, between its marks; with `--only-docs` nothing
is run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from trust_parts import LEVELS, PARTS, do

#: What is counted by default: together below 15 minutes on two cores.
COUNTS = {"evidences": 80, "fits": 150, "data_sets": 8, "texts": 4000, "tables": 1500, "models": 600, "kills": 150}


def run_part(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a part, and print them.

    Parameters
    ----------
    name : str
    options : argparse.Namespace
        Those of `read_options`.
    """
    part, begin = PARTS[name], time.perf_counter()
    tasks = part.tasks(options)
    found: list[Any] = []
    busy = 0.0
    for some, seconds in Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(do)(name, task) for task in tasks
    ):
        found += some
        busy += seconds
    figures = part.gather(found)
    figures |= {"seconds": round(time.perf_counter() - begin, 1), "busy_seconds": round(busy, 1), "jobs": options.jobs}
    figures |= {"machine": platform.machine(), "cores": os.cpu_count()}
    figures["lines"] = part.table(figures)
    counts = ", ".join(f"{count} {what}" for what, count in figures["counts"].items())
    took = f"{figures['seconds']:.0f} s, {busy:.0f} s of processors"
    print(f"{name}: {figures['total']} {part.title}{': ' if counts else ''}{counts} ({took})")
    for line in figures["problems"][:20]:
        print(f"    {line}")
    for line in part.table(figures) if name in ("torture", "units", "calibration") else ():
        print(f"    {line}")
    print(flush=True)
    return figures


def write_docs(page: Path, found: dict[str, Any]) -> None:
    """Put the figures of all parts into the tables of a page.

    Parameters
    ----------
    page : Path
        With lines ``<!-- trust: PART -->`` and ``<!-- end -->`` around each table.
    found : dict
        Figures by part; tables of others are left as they are.
    """
    text = page.read_text(encoding="utf-8")
    for name, figures in found["parts"].items():
        first = f"{figures['total']:,} {PARTS[name].title}, on {figures['machine']}:"
        lines = [f"<!-- trust: {name} -->", "", first, "", *PARTS[name].table(figures), "", "<!-- end -->"]
        found_at = re.search(rf"<!-- trust: {name} -->.*?<!-- end -->", text, flags=re.DOTALL)
        if found_at:
            text = text[: found_at.start()] + "\n".join(lines) + text[found_at.end() :]
    page.write_text(text, encoding="utf-8")


def read_options(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line, or of some words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all by default")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="how many processes")
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    parser.add_argument("--docs", type=Path, help="put the figures into this page")
    parser.add_argument("--only-docs", action="store_true", help="run nothing; take the figures from --json")
    help_of = {"data_sets": "of each system, for calibration", "fits": "public fits, half of them by each engine"}
    for name, count in COUNTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=count, help=help_of.get(name))
    parser.add_argument("--cases", nargs="+", help="names of torture; all by default")
    parser.add_argument("--systems", nargs="+", help="names in the catalog, for units and calibration")
    parser.add_argument("--points", type=int, default=30, help="how many times are measured, for units")
    parser.add_argument("--noises", type=int, default=1, help="how many levels of noise, for units: 1 or 2")
    return parser.parse_args(words)


def main() -> None:
    options = read_options()
    # Of all processes that are started from here.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    found: dict[str, Any] = {"parts": {}}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text(encoding="utf-8"))
    found |= {"levels": LEVELS}
    begin, bad = time.perf_counter(), 0
    for name in () if options.only_docs else options.parts or PARTS:
        figures = run_part(name, options)
        found["parts"][name] = figures
        bad += figures["bad"]
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.docs:
        write_docs(options.docs, found)
    print(f"what must not be: {bad} ({time.perf_counter() - begin:.0f} s)")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
