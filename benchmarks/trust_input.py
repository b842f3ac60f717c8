"""Whether input can do harm: mutated texts, tables and saved models, and writes that are killed.

    python benchmarks/trust_input.py [--texts N] [--tables N] [--models N] [--kills N] [--seed S] [--json FILE]

Fuzz: each input is read, or refused by a `LodekitError` with words in it; anything else is listed and counts as an
offence, and so does what takes longer than 20 s or more than 3 GB. Texts are pieces of equations, and equations with
pieces put in, taken out and doubled. Tables are files in several dialects with bytes changed, lines doubled and cells
replaced. Saved models are changed as bytes, and as values and arrays under a right checksum.

Kills: a process writes the results of two fits in turn, model, report, predictions and all, and is killed at a random
moment (SIGKILL). Each file must be whole, the one or the other, and after the next write nothing else may be there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Each thread of a library reserves memory, which would count.
os.environ |= {"POLARS_MAX_THREADS": "2", "LOKY_MAX_CPU_COUNT": "2"}
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.properties.grammar_fuzzer import make_text

import lodekit as lk
from lodekit.data.sources import load_data
from lodekit.support.files import read_archive, write_archive

SECONDS_EACH = 20
BYTES = 3 << 30
CELLS = [
    *("", "nan", "-", "1e400", "-1e-400", "1,5", "1.5", "0x10", "٣", "1 000", "2026-03-01", "31.02.2026 25:61", "true"),
    *("9" * 400, "1e", "--1", "+-2", '"', "'", '"1', "#", "%", "\x00", "\ufeff", "\u202e", "€", "inf", "NULL", "=1+1"),
    *("x" * 300, "12:00"),
]
TABLES = [
    "t,x,v\n" + "".join(f"{i / 10},{i * i / 7:.4f},{i % 5}\n" for i in range(30)),
    "Time [s];x;v\n" + "".join(f"{i};{i * 0.5};{-i}\n".replace(".", ",") for i in range(30)),
    "# a log\ndate\tx\tv\n" + "".join(f"2026-03-01 12:{i:02d}:00\t{i}\t\n" for i in range(30)),
    "t x v\n" + "".join(f"  {i}   {i + 0.25}  1e-{i}\n" for i in range(30)),
]
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    -1e-308,
    float("nan"),
    float("inf"),
    "",
    "x",
    [],
    {},
    [[]],
    "a" * 5000,
]


class HangError(Exception):
    """Something took longer than anything honest."""


def hang(*_: object) -> None:
    raise HangError(f"longer than {SECONDS_EACH} s")


def attempt(work: Callable[[], object], counts: Counter[str], offences: list[str], shown: str) -> None:
    """Count what becomes of one input: read, refused, or an offence."""
    signal.alarm(SECONDS_EACH)
    try:
        work()
        counts["read"] += 1
    except lk.LodekitError as problem:
        counts["refused"] += 1
        if not str(problem):
            offences.append(f"no words for {shown}")
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        offences.append(f"{type(problem).__name__}: {str(problem)[:200]} for {shown[:400]}")
    finally:
        signal.alarm(0)


def fuzz_texts(count: int, generator: random.Random) -> tuple[Counter[str], list[str]]:
    """Throw mutated equations at the grammar and the algebra."""
    counts, offences = Counter[str](), list[str]()
    for _ in range(count):
        text, names = make_text(generator), generator.choice([(), ("a",), ("a", "b")])
        attempt(lambda: lk.System(text, parameters=names).explain(), counts, offences, repr((text, names)))  # noqa: B023
    return counts, offences


def change_table(generator: random.Random) -> bytes:
    """Return a table with some of its bytes, cells and lines changed."""
    lines = generator.choice(TABLES).splitlines(keepends=True)
    for _ in range(generator.choice([0, 1, 1, 2, 4])):
        place = generator.randrange(len(lines))
        match generator.randrange(6):
            case 0:
                lines.insert(generator.randrange(len(lines) + 1), lines[place])
            case 1 if len(lines) > 1:
                del lines[place]
            case 2:
                separator = next((mark for mark in ";\t, " if mark in lines[place]), ",")
                cells = lines[place].rstrip("\n").split(separator)
                cells[generator.randrange(len(cells))] = generator.choice(CELLS)
                lines[place] = separator.join(cells) + "\n"
            case 3:
                generator.shuffle(lines)
            case 4:
                lines[place] = lines[place][: generator.randrange(len(lines[place]) + 1)]
            case _:
                lines[place] = generator.choice(CELLS) + lines[place]
    data = bytearray("".join(lines).encode(generator.choice(["utf-8", "utf-8", "utf-8", "utf-16"]), errors="replace"))
    for _ in range(generator.choice([0, 0, 0, 1, 3])):
        if data:
            data[generator.randrange(len(data))] = generator.randrange(256)
    packed = gzip.compress(bytes(data), 1) if generator.random() < 0.2 else bytes(data)
    return packed[: generator.randrange(len(packed) + 1)] if generator.random() < 0.1 else packed


def fuzz_tables(count: int, generator: random.Random, folder: Path) -> tuple[Counter[str], list[str]]:
    """Throw mutated files of measurements at the reader."""
    counts, offences = Counter[str](), list[str]()
    path = folder / "table.csv"
    for _ in range(count):
        content = change_table(generator)
        path.write_bytes(content)
        attempt(lambda: load_data(path, channels=["x", "v"]), counts, offences, repr(content[:300]))
    return counts, offences


def change_values(value: Any, generator: random.Random) -> Any:
    """Return plain values with one of them replaced, somewhere inside."""
    if isinstance(value, dict) and value and generator.random() < 0.9:
        key = generator.choice(list(value))
        if generator.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return value | {key: change_values(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.8:
        place = generator.randrange(len(value))
        return [change_values(item, generator) if i == place else item for i, item in enumerate(value)]
    return generator.choice(ODD_VALUES)


def change_arrays(arrays: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """Return arrays with one of them missing, or of another shape, kind or content."""
    name = generator.choice(list(arrays))
    array = arrays[name]
    changed: list[Callable[[], Any]] = [
        lambda: array.reshape(-1)[: generator.randrange(array.size + 1)],
        lambda: array.astype(complex),
        lambda: np.full(array.shape, generator.choice([np.nan, np.inf, 0.0, 1e300, -1.0])),
        lambda: np.array(["text"] * array.size).reshape(array.shape),
        lambda: np.stack([array, array]),
        lambda: np.zeros(0),
        lambda: array + generator.choice([1e-9, 1.0, 1e6]),
    ]
    if generator.random() < 0.1:
        return {key: value for key, value in arrays.items() if key != name}
    return arrays | {name: generator.choice(changed)()}


def fuzz_models(count: int, generator: random.Random, folder: Path) -> tuple[Counter[str], list[str]]:
    """Throw mutated saved models at the loader."""
    counts, offences = Counter[str](), list[str]()
    wholes = []
    for number, gp in enumerate(make_fits()):
        gp.save(folder / f"whole{number}")
        wholes.append(((folder / f"whole{number}").read_bytes(), *read_archive(folder / f"whole{number}")[:2]))
    path = folder / "model"
    for _ in range(count):
        data, values, arrays = generator.choice(wholes)
        shown = "bytes"
        if generator.random() < 0.3:
            damaged = bytearray(data)
            for _ in range(generator.randint(1, 4)):
                damaged[generator.randrange(len(damaged))] = generator.randrange(256)
            path.write_bytes(damaged if generator.random() < 0.7 else damaged[: generator.randrange(len(damaged))])
        else:
            if generator.random() < 0.5:
                values = change_values(values, generator)
            else:
                arrays = change_arrays(arrays, generator)
            write_archive(path, values, arrays)
            shown = str(values)[:350]
        attempt(lambda: lk.LODEGP.load(path).predict([0.5], return_std=True), counts, offences, shown)
    return counts, offences


def make_fits() -> list[lk.LODEGP]:
    """Return small fits: dense and spectral, with parameters and without."""
    times = np.linspace(0.0, 3.0, 12)
    values = np.exp(-times) + 0.01 * np.cos(40 * times)
    room = lk.System("x' = -a*x + v", parameters={"a": lk.Parameter(positive=True)})
    return [
        lk.LODEGP(room, random_state=0, restarts=1).fit(times, {"x": values}),
        lk.LODEGP(lk.System("x' = v"), random_state=0, restarts=1, engine="spectral").fit(times, {"x": values}),
    ]


def prepare_results() -> list[Any]:
    """Return the results of two fits, computed, ready to be written."""
    from lodekit.workflow.pipeline import FitRun, compute_results

    return [(product := FitRun(gp, "measurements"), compute_results(product, figures=False)[0]) for gp in make_fits()]


def write_forever(prepared: list[Any], folder: Path) -> None:
    """Write two fits in turn, until the end."""
    from lodekit.workflow.pipeline import write_results

    while True:
        for product, results in prepared:
            write_results(product, results, folder)


def is_model(path: Path, values: Any, arrays: dict[str, Any]) -> bool:
    """Return whether a file is the saved model with these values and arrays."""
    try:
        found, numbers, _ = read_archive(path)
    except lk.LodekitError:
        return False
    same = all(np.array_equal(numbers[name], own, equal_nan=own.dtype.kind == "f") for name, own in arrays.items())
    return bool(found == values and same)


def find_halves(prepared: list[Any], models: list[Any], folder: Path) -> list[str]:
    """Return what is in a folder that is neither the whole of the one nor of the other; parts do not count."""
    wrong = []
    for path in folder.iterdir():
        if path.name.endswith(".part"):
            continue
        if path.name == "model.lodekit":
            whole = any(is_model(path, *model) for model in models)
        else:
            contents = [results.get(path.name) for _, results in prepared]
            whole = path.read_bytes() in [item.encode() if isinstance(item, str) else item for item in contents]
        wrong += [] if whole else [path.name]
    return wrong


def survive_kills(count: int, generator: random.Random, folder: Path) -> tuple[Counter[str], list[str]]:
    """Kill a process that writes, again and again, and look at what is there."""
    from lodekit.workflow.pipeline import write_results

    prepared, models = prepare_results(), []
    for product, results in prepared:
        write_results(product, results, folder)
        models.append(read_archive(folder / "model.lodekit")[:2])
    begin = time.perf_counter()
    product, results = prepared[0]
    write_results(product, results, folder)
    once = 2 * (time.perf_counter() - begin)
    names = sorted(path.name for path in folder.iterdir())
    counts, offences = Counter[str](), list[str]()
    for _ in range(count):
        child = os.fork()
        if not child:
            try:
                write_forever(prepared, folder)
            finally:
                os.abort()
        time.sleep(generator.random() * once)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WTERMSIG(status) != signal.SIGKILL:
            offences.append("the writer ended before it was killed")
        offences += [f"{name} is half" for name in find_halves(prepared, models, folder)]
        counts["with a part left"] += any(path.name.endswith(".part") for path in folder.iterdir())
        product, results = generator.choice(prepared)
        write_results(product, results, folder)
        if (left := sorted(path.name for path in folder.iterdir())) != names:
            offences.append(f"left after the next write: {sorted(set(left) ^ set(names))}")
        counts["survived"] += 1
    return counts, offences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("texts", 20_000), ("tables", 4_000), ("models", 2_000), ("kills", 500)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, hang)
    _ = lk.LODEGP
    # Libraries reserve for each core much that they do not use.
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + BYTES, reserved + BYTES))
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "results").mkdir()
        parts: dict[str, Callable[[random.Random], tuple[Counter[str], list[str]]]] = {
            "texts": lambda generator: fuzz_texts(options.texts, generator),
            "tables": lambda generator: fuzz_tables(options.tables, generator, folder),
            "models": lambda generator: fuzz_models(options.models, generator, folder),
            "kills": lambda generator: survive_kills(options.kills, generator, folder / "results"),
        }
        for name, run in parts.items():
            begin = time.perf_counter()
            counts, offences = run(random.Random(f"{name} {options.seed}"))
            took = time.perf_counter() - begin
            rows[name] = {"count": getattr(options, name), **counts, "offences": len(offences), "seconds": took}
            shown = ", ".join(f"{value} {key}" for key, value in sorted(counts.items()))
            print(f"{name:8} {rows[name]['count']:>7}: {shown}; {len(offences)} offences ({took:.0f} s)", flush=True)
            for offence, times in Counter(offences).most_common(20):
                print(f"    {times} x {offence}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(row["offences"] for row in rows.values()))


if __name__ == "__main__":
    main()
