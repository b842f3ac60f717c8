"""What the core takes on the disk: install it into an empty environment, and add up the files of every package.

Packages come from where pip has them from.

    python benchmarks/installed.py [--extra NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

_COUNT = """
import json, os, sys
from importlib.metadata import distributions
sizes, compiled = {}, 0
for item in distributions():
    for file in item.files or ():
        place = item.locate_file(file)
        if os.path.isfile(place):
            # As du counts: in blocks of four kilobytes.
            size = -(-os.path.getsize(place) // 4096) * 4096
            name = item.metadata["Name"]
            sizes[name] = sizes.get(name, 0) + size
            compiled += size * str(file).endswith(".pyc")
for name, size in sorted(sizes.items(), key=lambda pair: -pair[1]):
    print(f"{size / 2**20:7.1f} MB  {name}")
total = sum(size for name, size in sizes.items() if name not in ("pip", "setuptools"))
print(f"{total / 2**20:7.1f} MB  together, without pip and setuptools")
print(f"{compiled / 2**20:7.1f} MB  of all that are compiled modules")
if len(sys.argv) > 1:
    open(sys.argv[1], "w").write(json.dumps({"megabytes": total / 2**20, "compiled": compiled / 2**20, "sizes": sizes}))
"""


#: Packages of the core, as docs/dependencies.md names them, with those that they bring along and no other needs.
PACKAGES: dict[str, list[list[str]]] = {
    "python-flint": [["python-flint"]],
    "sympy": [["sympy", "mpmath"]],
    "numpy, scipy": [["numpy"], ["scipy"]],
    "duckdb": [["duckdb"]],
    "narwhals": [["narwhals"]],
    "threadpoolctl": [["threadpoolctl"]],
    "joblib": [["joblib", "cloudpickle"]],
    "typer, rich": [
        ["typer", "shellingham", "pydantic", "pydantic_core", "annotated-types", "typing-inspection"],
        ["rich", "Pygments", "markdown-it-py", "mdurl"],
    ],
}


def size_table(sizes: dict[str, int]) -> list[str]:
    """Return the first columns of the table of docs/dependencies.md: packages and megabytes, one at least."""
    lines = ["| package | MB |", "| --- | --- |"]
    for name, groups in PACKAGES.items():
        megabytes = [max(1, round(sum(sizes[each] for each in own) / 2**20)) for own in groups]
        lines.append(f"| {name} | {', '.join(map(str, megabytes))} |")
    return lines


def main() -> None:
    """Print the MB of every package of an empty environment with lodekit in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", default="", help="an extra to install with it, such as plot")
    parser.add_argument("--json", type=Path, help="write the sums to this file")
    options = parser.parse_args()
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder, "bin", "python"))
        wanted = f"{root}[{options.extra}]" if options.extra else str(root)
        install = [python, "-m", "pip", "install", "--quiet", "-c", str(root / "constraints.txt"), wanted]
        subprocess.run(install, check=True)
        subprocess.run(
            [python, "-I", "-c", _COUNT, *([str(options.json.resolve())] if options.json else [])], check=True
        )


if __name__ == "__main__":
    main()
