"""Repeat the measurements behind every published number, and list the claims that no longer hold.

`docs/claims.toml` is the ledger. Each claim names the phrase as printed, its pages, a script, the key of the number in
the script's JSON output, and what it must be: at most, at least, or about a value, to a relative tolerance. Numbers are
ratios and counts; seconds appear only with the machine they were measured on. Of many numbers at a key, the `statistic`
(mean or median) is compared, or else the worst.

A claim whose text is a table is compared cell by cell with the table at its key, or with the one that the function
`table` makes of what is there. Numbers may differ by the relative `tolerance` plus the `margin`; the first `labels`
cells name a row; last columns and rows that the script does not print are left out, and these rows are listed. A claim
with `page = true` stands for all numbers on its page, which are made from stored results.

Each script runs once. Claims that need a program, a module or a file which is missing are skipped. A value that is
changed in the ledger fails without any measurement, too: the pages contain the old one.

    python benchmarks/claims.py [--quick] [--only ID ...] [--ledger FILE] [--docs]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEDGER, PAGE = ROOT / "docs" / "claims.toml", ROOT / "docs" / "claims.md"
CHECKS = ("at_most", "at_least", "about")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_N, _JOIN = NUMBER.pattern, r"(?:,? (?:and|to|or) |, ?| ?/ ?| ?→ ?| ?± ?| of )"
UNITS = r"s|[mn]s|(?:micro)?seconds?|minutes?|hours?|times|%|percent|[kMG]B|(?:kilo|mega|giga)bytes?|nats|of 100|bare"
#: A measured number is followed by a unit, counts some of many, fills a cell of a table, or bounds an error.
MEASURED = re.compile(
    rf"{_N} ?(?:{UNITS})(?![\w/^*'])|(?<=\| )(?:[<≥] ?)?-?{_N}(?:{_JOIN}-?{_N})*(?: [KV])?(?= \|)"
    rf"|\b{_N} of {_N}|(?:\bto|below|by about|less than) \d+(?:\.\d+)?e-\d+"
)
#: Levels of bands, intervals and tests, and the size of simulated noise, are settings.
SETTING = re.compile(
    rf"{_N}(?:{_JOIN}{_N})* % (?:bands?|intervals?|regions?|quantiles?|noise|level)\b"
    rf"|\b(?:level|noise|tests?) (?:of|at) {_N}(?:{_JOIN}{_N})* %"
)


def read_ledger(path: Path = LEDGER) -> dict[str, Any]:
    """Return the claims and settings of a ledger."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_pages() -> dict[str, str]:
    """Return the prose of the README and of all pages but the list of claims, by their paths."""
    paths = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path != PAGE]
    return {path.relative_to(ROOT).as_posix(): prose(path.read_text(encoding="utf-8")) for path in paths}


def prose(text: str) -> str:
    """Return a page without code, formulas, comments and line breaks; examples are checked by doctests."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|`[^`\n]*`|\$[^$\n]*\$", " ", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.split())


def find_unclaimed(page: str, text: str, ledger: dict[str, Any]) -> list[str]:
    """Return measured numbers on a page, given as prose, that are part of no claim and of no setting."""
    for entry in (*ledger["claim"], *ledger.get("setting", ())):
        if page in entry["pages"]:
            text = "" if entry.get("page") else text.replace(prose(entry["text"]), " ; ")
    return [match.group() for match in MEASURED.finditer(SETTING.sub(" ; ", text))]


def find_faults(claim: dict[str, Any], pages: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with an entry: a phrase that a page does not contain, or a value that the phrase does not."""
    for page in claim.get("pages", ()):
        if prose(claim["text"]) not in pages[page]:
            yield f"{claim['id']}: {page} does not contain {claim['text']!r}"
    checks = [name for name in CHECKS if name in claim]
    if claim["text"].startswith("|"):
        return
    if len(checks) != 1:
        yield f"{claim['id']}: expected one of {', '.join(CHECKS)}"
    printed = [float(number.replace(",", "")) for number in NUMBER.findall(claim["text"])]
    if not any(abs(claim[name]) == number for name in checks for number in printed):
        yield f"{claim['id']}: its value is not in {claim['text']!r}"


def select(found: Any, key: str) -> Iterator[Any]:
    """Yield what is at a key: names, indices, ``*`` (all) and ``name=value`` (items with it), joined by slashes."""
    if not key:
        yield found
        return
    first, _, rest = key.partition("/")
    if first == "*":
        items = list(found.values() if isinstance(found, dict) else found)
    elif re.fullmatch(r"\w+=[\w.]+", first):
        name, _, value = first.partition("=")
        items = [item for item in found if str(item[name]) == value]
    else:
        items = [found[int(first)] if isinstance(found, list) else found[first]]
    for item in items:
        yield from select(item, rest)


def judge(claim: dict[str, Any], found: Any) -> tuple[bool, float]:
    """Return whether a claim holds, and the measured number; of several, the worst; of a table, how many differ."""
    if claim["text"].startswith("|"):
        lines = next(select(found, claim["key"]))
        if "table" in claim:
            module, _, name = claim["table"].partition(".")
            lines = getattr(importlib.import_module(module), name)(lines)
        differing = count_differences(claim, lines)
        return differing == 0, differing
    values = [claim.get("factor", 1.0) * float(value) for value in select(found, claim["key"])]
    values = [getattr(statistics, claim["statistic"])(values)] if "statistic" in claim else values
    expected = next(claim[name] for name in CHECKS if name in claim)
    slack = (claim.get("tolerance", 0.0) + 1e-12) * abs(expected)
    if "at_most" in claim:
        return max(values) <= expected + slack, max(values)
    if "at_least" in claim:
        return min(values) >= expected - slack, min(values)
    worst = max(values, key=lambda value: abs(value - expected))
    return abs(worst - expected) <= slack, worst


def count_differences(claim: dict[str, Any], lines: list[str]) -> float:
    """Return how many cells of a published table, as Markdown, differ from measured lines; NaN if they share no row."""
    labels, slack, differing, shared = claim.get("labels", 1), claim.get("tolerance", 0.0), 0, 0
    tables = []
    for rows in (claim["text"].splitlines(), lines):
        cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows if row.strip()]
        tables.append({tuple(row[:labels]): row[labels:] for row in cells})
    for label in (label for label in tables[0] if label in tables[1]):
        shared += 1
        for cell, other in zip(tables[0][label], tables[1][label], strict=False):
            olds, news = ([float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (cell, other))
            near = NUMBER.sub("", cell) == NUMBER.sub("", other) and all(
                abs(old - new) <= slack * abs(old) + claim.get("margin", 0.0) + 1e-12
                for old, new in zip(olds, news, strict=True)
            )
            differing += not near
    # After the names of the columns and the line below them.
    if missing := [" ".join(label) for label in list(tables[0])[2:] if label not in tables[1]]:
        print(f"not measured here: {', '.join(missing)}")
    return differing if shared else math.nan


def measure(script: str) -> Any:
    """Return what a script with its arguments writes to its JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "found.json")
        # Some scripts fail if their own requirements are not met, after they have written what they found.
        command = [sys.executable, *script.split(), "--json", str(path)]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
        if not path.exists():
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return json.loads(path.read_text(encoding="utf-8"))


def check_claims(claims: list[dict[str, Any]]) -> list[str]:
    """Run the scripts of some claims, print one line for each claim, and return those that do not hold."""
    broken = []
    for script in dict.fromkeys(claim["script"] for claim in claims):
        own = [claim for claim in claims if claim["script"] == script]
        try:
            found: Any = measure(script)
        except (subprocess.CalledProcessError, ValueError) as error:
            # No result, or half of one; the other scripts run all the same.
            reason = error.stderr.decode()[-2000:] if isinstance(error, subprocess.CalledProcessError) else error
            print(f"{script} failed:\n{reason}")
            for claim in own:
                print(f"BROKEN  {claim['id']:<28}   no result   {describe(claim)}", flush=True)
            broken += [claim["id"] for claim in own]
            continue
        for claim in own:
            try:
                holds, value = judge(claim, found)
            except Exception as error:  # a result of another form than expected, or a table that cannot be made
                holds, value = False, math.nan
                print(f"{script} has no {claim['key']}: {error!r}")
            broken += [] if holds else [claim["id"]]
            print(
                f"{'holds' if holds else 'BROKEN':<7} {claim['id']:<28} {value:10.4g}   {describe(claim)}", flush=True
            )
    return broken


def describe(claim: dict[str, Any]) -> str:
    """Return the text of a claim on one line; of a table, its title and size."""
    numbers = len(NUMBER.findall(claim["text"]))
    return f"{claim['title']} (table, {numbers} numbers)" if claim["text"].startswith("|") else claim["text"]


def make_page(ledger: dict[str, Any]) -> str:
    """Return the page that lists all claims."""
    lines = [
        "# Published numbers",
        "",
        "Every number about speed, size, accuracy or coverage in these pages is an entry of `docs/claims.toml`.",
        "`make claims` repeats the measurements and lists claims that no longer hold; `make claims QUICK=1` repeats",
        "those that take a few minutes. `benchmarks/claims.py --docs` makes this page from the ledger.",
        "",
        "| claim | pages | script | compared | measured | when and where | quick |",
        "| --- | --- | --- | --- | ---: | --- | --- |",
    ]
    for claim in ledger["claim"]:
        pages = ", ".join(f"`{page}`" for page in claim["pages"])
        is_table = claim["text"].startswith("|")
        compared = (
            "all cells" if is_table else next(f"{n.replace('_', ' ')} {claim[n]:g}" for n in CHECKS if n in claim)
        )
        compared += f", to {100 * claim['tolerance']:g} %" if claim.get("tolerance") else ""
        measured = "as published" if is_table else f"{claim['measured']:g}"
        # More columns would not fit on a page.
        where = ", ".join(claim[name] for name in ("date", "commit", "machine"))
        cells = [describe(claim), pages, f"`{claim['script']}`", compared, measured, where]
        lines.append(f"| {' | '.join([*cells, 'yes' if claim['quick'] else 'no'])} |")
    return "\n".join(lines) + "\n"


def is_available(name: str) -> bool:
    """Return whether a program, a Python module or a file with this name exists."""
    if shutil.which(name) or (ROOT / name).exists():
        return True
    return name.isidentifier() and importlib.util.find_spec(name) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only claims that take a few minutes")
    parser.add_argument("--only", nargs="+", help="ids of claims")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--docs", action="store_true", help="write docs/claims.md and measure nothing")
    options = parser.parse_args()
    ledger = read_ledger(options.ledger)
    if options.docs:
        PAGE.write_text(make_page(ledger), encoding="utf-8")
        return
    chosen = [claim for claim in ledger["claim"] if claim["quick"] or not options.quick]
    chosen = [claim for claim in chosen if not options.only or claim["id"] in options.only]
    pages = read_pages()
    faults = [fault for claim in ledger["claim"] for fault in find_faults(claim, pages)]
    missing = [claim for claim in chosen if not all(is_available(need) for need in claim.get("needs", "").split())]
    for claim in missing:
        print(f"skipped {claim['id']:<28} needs {claim['needs']}")
    broken = check_claims([claim for claim in chosen if claim not in missing])
    print("\n  ".join([f"{len(chosen) - len(missing)} claims, {len(broken)} no longer hold", *broken, *faults]))
    sys.exit(1 if broken or faults else 0)


if __name__ == "__main__":
    main()
