"""A draft of a conda recipe (rattler-build's format), made from pyproject.toml so that names and versions agree.

    python recipe/make.py

What only a release knows, the address of its source and its checksum, is left to be filled in, and says so.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipe" / "recipe.yaml"
#: Packages that conda-forge calls otherwise than PyPI.
CONDA_NAMES = {"duckdb": "python-duckdb", "matplotlib": "matplotlib-base"}
#: Markers of pyproject.toml, and the same as conditions of rattler-build.
CONDITIONS = {
    "sys_platform == 'linux' and platform_machine == 'aarch64'": "linux and aarch64",
    "sys_platform != 'linux' or platform_machine != 'aarch64'": "not (linux and aarch64)",
}
TEMPLATE = """\
# A draft, made by recipe/make.py: change pyproject.toml and run it again. To be filled in at a release: TODO.
schema_version: 1

context:
  version: "{version}"

package:
  name: {name}
  version: ${{{{ version }}}}

source:
  url: https://pypi.org/packages/source/l/{name}/{name}-${{{{ version }}}}.tar.gz
  sha256: TODO

build:
  number: 0
  script: ${{{{ PYTHON }}}} -m pip install . -vv --no-deps --no-build-isolation
  python:
    entry_points:
{entry_points}

requirements:
  host:
    - python
    - pip
{build}
  run:
    - python {python}
{run}

tests:
  - python:
      imports:
        - {name}
      pip_check: true
  - script:
      - {name} --version
      - {name} inspect "x' = -a*x + u" --param a

about:
  homepage: TODO
  repository: TODO
  summary: "{summary}"
  license: {license}
  license_file: LICENSE

extra:
  recipe-maintainers:
    - TODO
"""


def make_recipe(project: dict[str, Any], version: str) -> str:
    """Return the recipe of a project as text.

    Parameters
    ----------
    project : dict
        What pyproject.toml holds.
    version : str
    """
    table = project["project"]
    return TEMPLATE.format(
        name=table["name"],
        version=version,
        summary=table["description"],
        license=table["license"],
        python=table["requires-python"],
        entry_points="\n".join(f"      - {name} = {target}" for name, target in table["scripts"].items()),
        build="\n".join(f"    - {conda_name(text)}" for text in project["build-system"]["requires"]),
        run="\n".join(line for text in table["dependencies"] for line in requirement_lines(text)),
    )


def requirement_lines(text: str) -> list[str]:
    """Return a requirement of pyproject.toml as lines of a recipe.

    Parameters
    ----------
    text : str
        Such as ``"numpy>=2.0"``, with or without a marker; an unknown marker is a KeyError.
    """
    package, _, marker = (part.strip() for part in text.partition(";"))
    if not marker:
        return [f"    - {conda_name(package)}"]
    return [f"    - if: {CONDITIONS[marker]}", f"      then: {conda_name(package)}"]


def conda_name(text: str) -> str:
    """Return a requirement as conda writes it: its name there, and its version after a space.

    Parameters
    ----------
    text : str
    """
    name, version = re.fullmatch(r"([A-Za-z0-9_.-]+?)\s*(?:\[.*\])?\s*([<>=!~].*)?", text).groups()  # type: ignore[union-attr, unused-ignore]
    return f"{CONDA_NAMES.get(name, name)} {version or ''}".strip()


def read_version() -> str:
    """Return the version of the package, without importing it."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/lodekit/version.py").read_text(), flags=re.MULTILINE)
    if found is None:
        raise SystemExit("no version in src/lodekit/version.py")
    return found[1]


if __name__ == "__main__":
    RECIPE.write_text(make_recipe(tomllib.loads((ROOT / "pyproject.toml").read_text()), read_version()))
