"""Measure the size and the fragmentation of a source folder, for lodekit or for any other Python package.

    python benchmarks/structure.py [FOLDER ...] [--list METRIC] [--json FILE]

Prints one row per metric and one column per folder. ``--list`` names the places behind one metric.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src" / "lodekit"
#: A file below this number of code lines is small; a function whose body has at most so many is tiny.
SMALL_FILE, TINY_FUNCTION = 40, 3
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class SourceFile:
    """One parsed file: all nodes, and its code lines and docstring lines as sets of line numbers."""

    path: str
    tree: ast.Module
    nodes: list[ast.AST]
    code: set[int] = field(default_factory=set)
    docstrings: set[int] = field(default_factory=set)


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """Return the docstring statement of a module, class or function."""
    body = getattr(node, "body", None)
    if isinstance(node, ast.Module | Definition) and body and isinstance(body[0], ast.Expr):
        value = body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return body[0]
    return None


def read_source(path: Path, folder: Path) -> SourceFile:
    """Parse one file and classify its lines."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    source = SourceFile(path.relative_to(folder).as_posix(), tree, list(ast.walk(tree)))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    source.code |= {number for number, line in lines if line and not line.startswith("#")}
    for node in source.nodes:
        if (found := docstring_of(node)) is not None:
            source.docstrings |= set(range(found.lineno, (found.end_lineno or 0) + 1))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            # Blank lines and number signs inside a string are code.
            source.code |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    source.code -= source.docstrings
    return source


def code_length(source: SourceFile, node: ast.stmt) -> int:
    """Count the code lines of a definition, without decorators, docstrings, comments and blank lines."""
    return len(source.code & set(range(node.lineno, (node.end_lineno or 0) + 1)))


def is_number(node: ast.expr) -> bool:
    """Return whether an expression is a number, or arithmetic of numbers."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def numeric_constants(source: SourceFile) -> Iterator[str]:
    """Yield module-level names that are assigned a number."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if all(is_number(value) for value in values) and isinstance(targets[0], ast.Name | ast.Tuple):
                yield f"{source.path}:{node.lineno} {ast.unparse(targets[0])}"


def used_names(sources: list[SourceFile]) -> Counter[str]:
    """Count how often each name is read, as a name or as an attribute."""
    names: Counter[str] = Counter()
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names[node.id] += 1
            elif isinstance(node, ast.Attribute):
                names[node.attr] += 1
    return names


def called_names(sources: list[SourceFile]) -> Counter[str]:
    """Count the places where each name is called, directly or through a class method."""
    names: Counter[str] = Counter()
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    names[node.func.id] += 1
                elif isinstance(node.func, ast.Attribute):
                    names[node.func.attr] += 1
                    if isinstance(node.func.value, ast.Name):
                        names[node.func.value.id] += 1
    return names


def tiny_functions(sources: list[SourceFile]) -> Iterator[str]:
    """Yield undecorated module-level functions with a body of at most three code lines that are used once."""
    uses = used_names(sources)
    for source in sources:
        for node in source.tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
                continue
            if not node.decorator_list and uses[node.name] == 1:
                first = node.body[1 if docstring_of(node) is not None and len(node.body) > 1 else 0].lineno
                if len(source.code & set(range(first, (node.end_lineno or 0) + 1))) <= TINY_FUNCTION:
                    yield f"{source.path}:{node.lineno} {node.name}"


def single_use_classes(sources: list[SourceFile]) -> Iterator[str]:
    """Yield classes that are constructed in exactly one place and are nobody's base class."""
    calls = called_names(sources)
    bases = {
        base.id
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and calls[node.name] == 1 and node.name not in bases:
                yield f"{source.path}:{node.lineno} {node.name}"


def repeated_classes(sources: list[SourceFile]) -> list[str]:
    """Return public class names that are defined more than once."""
    names = Counter(
        node.name
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def root_entries(folder: Path) -> list[str]:
    """Return modules, packages and data folders directly below the package root."""
    return sorted(
        path.name for path in folder.iterdir() if path.name != "__pycache__" and not path.name.startswith(".")
    )


def measure(folder: Path) -> dict[str, list[str] | int]:
    """Return every metric of a source folder: a list of places, or a number."""
    sources = [read_source(path, folder) for path in sorted(folder.rglob("*.py"))]
    definitions = [node for source in sources for node in source.nodes]
    return {
        "files": [source.path for source in sources],
        "root entries": root_entries(folder),
        "code lines": sum(len(source.code) for source in sources),
        "docstring lines": sum(len(source.docstrings) for source in sources),
        "numeric constants": [place for source in sources for place in numeric_constants(source)],
        "small files": [
            f"{source.path} {len(source.code)}"
            for source in sources
            if len(source.code) < SMALL_FILE and not source.path.endswith("__init__.py")
        ],
        "tiny functions": list(tiny_functions(sources)),
        "single-use classes": list(single_use_classes(sources)),
        "repeated class names": repeated_classes(sources),
        "classes": sum(isinstance(node, ast.ClassDef) for node in definitions),
        "functions": sum(isinstance(node, ast.FunctionDef) for node in definitions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", default=[SOURCES])
    parser.add_argument("--list", metavar="METRIC", help="list the places behind one metric, such as 'small files'")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {str(folder): measure(folder.resolve()) for folder in arguments.folders}
    if arguments.list:
        for found in results.values():
            places = found[arguments.list]
            print("\n".join(places) if isinstance(places, list) else places)
        return
    counts = {
        folder: {name: len(value) if isinstance(value, list) else value for name, value in found.items()}
        for folder, found in results.items()
    }
    for name in next(iter(counts.values())):
        print(f"{name:24}" + "".join(f"{found[name]:10,}" for found in counts.values()))
    if arguments.json:
        arguments.json.write_text(json.dumps(counts, indent=1) + "\n")


if __name__ == "__main__":
    main()
