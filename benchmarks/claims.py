"""Repeat the measurements behind every published number, and list the claims that no longer hold.

`docs/claims.toml` is the ledger. Each claim names the phrase as printed, its pages, a script, the key of the number in
the script's JSON output, and what it must be: at most, at least, or about a value, to a relative tolerance. Numbers are
ratios and counts; seconds appear only with the machine they were measured on. Each script runs once. Claims that need a
program which is not installed are skipped.

    python benchmarks/claims.py [--quick] [--only ID ...] [--ledger FILE] [--docs]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
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
#: A number, and a measured one: followed by a unit. Levels of intervals and bands ("95 % intervals") are settings.
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
UNITS = r"s|[mn]s|(?:micro)?seconds?|minutes?|hours?|times|%|percent|[kMG]B|(?:kilo|mega|giga)bytes?|nats|of 100|bare"
MEASURED = re.compile(rf"{NUMBER.pattern} ?(?:{UNITS})(?![\w/^*'])(?! (?:bands?|intervals?)\b)")


def read_ledger(path: Path = LEDGER) -> dict[str, Any]:
    """Return the claims, settings and pending pages of a ledger."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def prose(text: str) -> str:
    """Return a page without code, formulas, comments and line breaks; examples are checked by doctests."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|`[^`\n]*`|\$[^$\n]*\$", " ", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.split())


def find_unclaimed(page: str, text: str, ledger: dict[str, Any]) -> list[str]:
    """Return measured numbers on a page, given as prose, that are part of no claim and of no setting."""
    for entry in (*ledger["claim"], *ledger.get("setting", ())):
        if page in entry["pages"]:
            text = text.replace(entry["text"], " ; ")
    return [match.group() for match in MEASURED.finditer(text)]


def find_faults(claim: dict[str, Any], pages: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with an entry: a phrase that a page does not contain, or a value that the phrase does not."""
    for page in claim["pages"]:
        if claim["text"] not in pages[page]:
            yield f"{claim['id']}: {page} does not contain {claim['text']!r}"
    checks = [name for name in CHECKS if name in claim]
    if len(checks) != 1:
        yield f"{claim['id']}: expected one of {', '.join(CHECKS)}"
    printed = [float(number.replace(",", "")) for number in NUMBER.findall(claim["text"])]
    if not any(abs(claim[name]) == number for name in checks for number in printed):
        yield f"{claim['id']}: its value is not in {claim['text']!r}"


def select(found: Any, key: str) -> Iterator[float]:
    """Yield the numbers at a key: names, indices, ``*`` (all) and ``name=value`` (items with it), joined by slashes."""
    if not key:
        yield float(found)
        return
    first, _, rest = key.partition("/")
    if first == "*":
        items = list(found.values() if isinstance(found, dict) else found)
    elif "=" in first:
        name, _, value = first.partition("=")
        items = [item for item in found if str(item[name]) == value]
    else:
        items = [found[int(first)] if isinstance(found, list) else found[first]]
    for item in items:
        yield from select(item, rest)


def judge(claim: dict[str, Any], found: Any) -> tuple[bool, float]:
    """Return whether a claim holds, and the measured number; of several, the one that is worst for the claim."""
    values = [claim.get("factor", 1.0) * value for value in select(found, claim["key"])]
    expected = next(claim[name] for name in CHECKS if name in claim)
    slack = (claim.get("tolerance", 0.0) + 1e-12) * abs(expected)
    if "at_most" in claim:
        return max(values) <= expected + slack, max(values)
    if "at_least" in claim:
        return min(values) >= expected - slack, min(values)
    worst = max(values, key=lambda value: abs(value - expected))
    return abs(worst - expected) <= slack, worst


def measure(script: str) -> Any:
    """Return what a script with its arguments writes to its JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "found.json")
        subprocess.run(
            [sys.executable, *script.split(), "--json", str(path)], cwd=ROOT, check=True, capture_output=True
        )
        return json.loads(path.read_text(encoding="utf-8"))


def check_claims(claims: list[dict[str, Any]]) -> list[str]:
    """Run the scripts of some claims, print one line for each claim, and return those that do not hold."""
    broken = []
    for script in dict.fromkeys(claim["script"] for claim in claims):
        own = [claim for claim in claims if claim["script"] == script]
        try:
            found: Any = measure(script)
        except subprocess.CalledProcessError as error:
            print(f"{script} failed:\n{error.stderr.decode()[-2000:]}")
            broken += [claim["id"] for claim in own]
            continue
        for claim in own:
            try:
                holds, value = judge(claim, found)
            except (KeyError, IndexError, ValueError, TypeError) as error:
                holds, value = False, math.nan
                print(f"{script} has no {claim['key']}: {error!r}")
            broken += [] if holds else [claim["id"]]
            print(f"{'holds' if holds else 'BROKEN':<7} {claim['id']:<28} {value:10.4g}   {claim['text']}", flush=True)
    return broken


def make_page(ledger: dict[str, Any]) -> str:
    """Return the page that lists all claims."""
    lines = [
        "# Published numbers",
        "",
        "Numbers about speed, size, accuracy or coverage in these pages are entries of `docs/claims.toml`.",
        "`make claims` repeats the measurements and lists claims that no longer hold; `make claims QUICK=1` repeats",
        "those that take a few minutes. `benchmarks/claims.py --docs` makes this page from the ledger.",
        "",
        "| claim | pages | script | measured | date | commit | machine | quick |",
        "| --- | --- | --- | ---: | --- | --- | --- | --- |",
    ]
    for claim in ledger["claim"]:
        pages = ", ".join(f"`{page}`" for page in claim["pages"])
        cells = [claim["text"], pages, f"`{claim['script']}`", f"{claim['measured']:g}", claim["date"], claim["commit"]]
        lines.append(f"| {' | '.join([*cells, claim['machine'], 'yes' if claim['quick'] else 'no'])} |")
    waiting = ", ".join(f"`{page}` ({count})" for page, count in ledger["pending"].items())
    lines += ["", f"Pages with numbers that are not in the ledger yet, and how many: {waiting}."]
    return "\n".join(lines) + "\n"


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
    missing = [claim for claim in chosen if claim.get("needs") and not shutil.which(claim["needs"])]
    for claim in missing:
        print(f"skipped {claim['id']:<28} needs {claim['needs']}")
    broken = check_claims([claim for claim in chosen if claim not in missing])
    print("\n  ".join([f"{len(chosen) - len(missing)} claims, {len(broken)} no longer hold", *broken]))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
