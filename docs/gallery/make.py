"""Generate the gallery: run every script of `examples/` and write a page with its story, code, output and figure.

Each page has a Jupyter notebook with the same code.

    python docs/gallery/make.py [NAME ...] [--data FOLDER]

Pages and figures are part of the project, so that the site shows fits to real records, which are not. A page is not
changed if its record is missing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES, GALLERY = ROOT / "examples", ROOT / "docs" / "gallery"
#: The text after this marker is placed below the figure.
SEE = "What to look for: "
GROUPS = {
    "The systems of the paper": ("bipendulum", "heating", "three_tank"),
    "Oscillators and masses": (
        "free_decay",
        "spring_mass_damper",
        "shaken_oscillator",
        "two_mass",
        "mass_chain",
        "cart_pendulum",
        "quarter_car",
    ),
    "Circuits, tanks, rooms and drugs": ("rlc_circuit", "dc_motor", "coupled_tanks", "compartments", "two_room"),
    "Real records": ("tclab", "lamp", "school"),
}
NAMES = tuple(name for names in GROUPS.values() for name in names)
#: Resolution of the figure on a page, and width of the small one in the index.
DPI, SMALL_WIDTH = 120, 360
COLUMNS = 3


@dataclass(frozen=True)
class Script:
    """The parts of a script of `examples/`.

    Parameters
    ----------
    title, story, see : str
        The first line of its docstring, the following paragraphs, and what its figure shows.
    code : str
        The code after the docstring.
    """

    title: str
    story: str
    see: str
    code: str


def read_script(name: str) -> Script:
    """Return the parts of a script.

    Parameters
    ----------
    name : str
        The name of the file, without its extension.
    """
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    title, _, rest = (ast.get_docstring(tree) or "").partition("\n")
    story, _, see = rest.partition(SEE)
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno :])
    return Script(title.removesuffix("."), story.strip(), see.strip(), code.strip())


def run_script(name: str, folder: Path, data: Path | None = None, dpi: int = DPI) -> str:
    """Run a script in a folder, where it saves its figure, and return what it prints.

    Parameters
    ----------
    name : str
    folder : Path
        The working directory.
    data : Path, optional
        The folder of the real records; other scripts ignore it.
    dpi : int
        Resolution of its figure.
    """
    import matplotlib as mpl

    printed, arguments, here = io.StringIO(), sys.argv, Path.cwd()
    script = str(EXAMPLES / f"{name}.py")
    try:
        sys.argv = [script] if data is None else [script, str(data)]
        os.chdir(folder)
        with contextlib.redirect_stdout(printed), mpl.rc_context({"savefig.dpi": dpi}):
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = arguments
        os.chdir(here)
    return printed.getvalue()


def make_page(name: str, output: str) -> str:
    """Return the page of a script as Markdown.

    Parameters
    ----------
    name, output : str
        The script, and its output.
    """
    script, shown = read_script(name), describe_system(name)
    return (
        f"<!-- made by docs/gallery/make.py from examples/{name}.py -->\n\n# {script.title}\n\n{script.story}\n\n"
        f"{shown}"
        f"![{script.title}](figures/{name}.png)\n\n{SEE}{script.see}\n\n"
        f"## Code\n\n`python examples/{name}.py`, or the [Jupyter notebook](notebooks/{name}.ipynb):\n\n"
        f"```python\n{script.code}\n```\n\n"
        f"Output:\n\n```text\n{output.rstrip()}\n```\n"
    )


def make_notebook(name: str) -> str:
    """Return a Jupyter notebook with the story and the code of a script, one cell per paragraph, without outputs.

    Parameters
    ----------
    name : str
    """
    script = read_script(name)
    # Notebooks have no arguments of a command line, and show figures instead of saving them.
    code = script.code.replace("sys.argv[1] if len(sys.argv) > 1 else ", "")
    code = code.replace(f'figure.savefig("{name}.png")', "figure")
    texts = [("markdown", f"# {script.title}\n\n{script.story}")]
    texts += [("code", part) for part in split_code(code)]
    texts.append(("markdown", f"{SEE}{script.see}"))
    cells = [
        {"cell_type": kind, "id": f"{name[:50]}-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, text) in enumerate(texts)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def split_code(code: str) -> list[str]:
    r"""Return the cells of some code: imports, and then its paragraphs, statements of one block together.

    Parameters
    ----------
    code : str

    Examples
    --------
    >>> split_code("import numpy\n\nimport lodekit\n\nx = 1\ny = 2\n\nprint(x)")
    ['import numpy\n\nimport lodekit', 'x = 1\ny = 2', 'print(x)']
    """
    lines, cells, last = code.splitlines(), list[list[str]](), 0
    for node in ast.parse(code).body:
        text = "\n".join(lines[last : node.end_lineno])
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if cells and (is_import or not text.startswith("\n")):
            cells[-1].append(text)
        else:
            cells.append([text])
        last = node.end_lineno or last
    return ["\n".join(cell).strip("\n") for cell in cells]


def describe_system(name: str) -> str:
    """Return the equations of a system of the catalog, and what they imply; empty for a real record.

    Parameters
    ----------
    name : str
    """
    import lodekit as lk

    example = lk.catalog.find_example(name)
    if example is None:
        return ""
    equations = "\n".join(example.system.equations)
    return f"The equations, `lk.catalog.{name}()`:\n\n```text\n{equations}\n```\n\n{example.system.explain()}\n\n"


def make_index() -> str:
    """Return the index page: a small figure of each script, in groups."""
    lines = [
        "<!-- made by docs/gallery/make.py -->",
        "",
        "# Gallery",
        "",
        "Each page fits a system of the catalog, or a real record, with a short script that you can run:",
        "`examples/NAME.py` in the repository. Black points are measurements, the blue line is the mean with its",
        "95 % band, the dashed red line is the truth if it is known, and times without measurements are grey. The",
        "test suite runs every script and compares its output with the pages.",
        "",
    ]
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for start in range(0, len(names), COLUMNS):
            row = names[start : start + COLUMNS]
            pictures = [f"[![{read_script(n).title}](figures/{n}-small.png)]({n}.md)" for n in row]
            blanks = [""] * (COLUMNS - len(row))
            lines += [] if start else ["| " + " | ".join([" "] * COLUMNS) + " |", "|" + " --- |" * COLUMNS]
            lines += ["| " + " | ".join(cells) + " |" for cells in (pictures + blanks, _titles(row) + blanks)]
        lines.append("")
    return "\n".join([*lines, "```{toctree}", ":hidden:", "", *NAMES, "```", ""])


def _titles(names: tuple[str, ...]) -> list[str]:
    return [f"[{read_script(name).title}]({name}.md)" for name in names]


def save_pictures(name: str, made: Path) -> None:
    """Write the figure of a script with a reduced palette, and a small version of it.

    Parameters
    ----------
    name : str
    made : Path
        The figure that the script saved.
    """
    from PIL import Image

    with Image.open(made) as opened:
        picture = opened.convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(GALLERY / "figures" / f"{name}.png", optimize=True)
    small = picture.copy()
    small.thumbnail((SMALL_WIDTH, round(0.75 * SMALL_WIDTH)), Image.Resampling.LANCZOS)
    small.quantize(48, dither=Image.Dither.NONE).save(GALLERY / "figures" / f"{name}-small.png", optimize=True)


def main() -> None:
    """Run the scripts and write their pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts to run; all by default")
    default = Path(os.environ.get("LODEKIT_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=default, help="folder of the real records")
    given = parser.parse_args()
    for name in given.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                output = run_script(name, Path(folder), given.data.resolve())
            except SystemExit as stop:
                print(f"{name}: not changed, {stop}")
                continue
            save_pictures(name, Path(folder, f"{name}.png"))
        (GALLERY / f"{name}.md").write_text(make_page(name, output), encoding="utf-8")
        (GALLERY / "notebooks" / f"{name}.ipynb").write_text(make_notebook(name), encoding="utf-8")
        print(f"{name}: {(GALLERY / 'figures' / f'{name}.png').stat().st_size // 1000} kB")
    (GALLERY / "index.md").write_text(make_index(), encoding="utf-8")


if __name__ == "__main__":
    main()
