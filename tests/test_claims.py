"""Numbers about speed, size, accuracy and coverage on the pages come from the ledger, and the ledger is checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import claims

ROOT = Path(__file__).parents[1]
LEDGER = claims.read_ledger()
PAGES = {
    path.relative_to(ROOT).as_posix(): claims.prose(path.read_text())
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path != claims.PAGE
}
FIELDS = {"id", "text", "pages", "script", "key", "measured", "machine", "commit", "date", "quick"}


def find_all_faults(ledger: dict[str, Any]) -> list[str]:
    return [fault for claim in ledger["claim"] for fault in claims.find_faults(claim, PAGES)]


def test_pages_contain_only_measured_numbers_of_the_ledger() -> None:
    unclaimed = {page: claims.find_unclaimed(page, text, LEDGER) for page, text in PAGES.items()}
    # What waits for its entry may become less, and never more.
    assert {page: found for page, found in unclaimed.items() if len(found) > LEDGER["pending"].get(page, 0)} == {}
    assert {page: count for page, count in LEDGER["pending"].items() if count > len(unclaimed[page])} == {}


def test_a_new_number_on_a_page_is_noticed() -> None:
    text = PAGES["README.md"] + " Fits take 0.3 s, 12 times less than before."
    assert claims.find_unclaimed("README.md", text, LEDGER) == ["0.3 s", "12 times"]


def test_entries_are_complete_and_printed_on_their_pages() -> None:
    assert [claim["id"] for claim in LEDGER["claim"] if claim.keys() < FIELDS] == []
    assert len({claim["id"] for claim in LEDGER["claim"]}) == len(LEDGER["claim"])
    assert [claim["id"] for claim in LEDGER["claim"] if not (ROOT / claim["script"].split()[0]).exists()] == []
    assert find_all_faults(LEDGER) == []


def test_recorded_measurements_satisfy_their_claims() -> None:
    # A list of one number at the key "0" stands for the output of the script.
    recorded = [({**claim, "key": "0", "factor": 1.0}, [claim["measured"]]) for claim in LEDGER["claim"]]
    assert [claim["id"] for claim, found in recorded if not claims.judge(claim, found)[0]] == []


@pytest.mark.parametrize("position", range(len(LEDGER["claim"])))
def test_changing_one_value_of_the_ledger_is_noticed(position: int) -> None:
    changed = [dict(claim) for claim in LEDGER["claim"]]
    check = next(name for name in claims.CHECKS if name in changed[position])
    changed[position][check] = 1.07 * changed[position][check] + 0.001
    assert find_all_faults({"claim": changed}) != []


def test_the_list_of_claims_is_up_to_date() -> None:
    assert claims.PAGE.read_text() == claims.make_page(LEDGER), "run: python benchmarks/claims.py --docs"


@pytest.mark.parametrize(("limit", "code"), [(3.0, 0), (1.0, 1)])
def test_the_runner_fails_if_a_value_is_changed(limit: float, code: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys; open(sys.argv[2], 'w').write({json.dumps([{'ratio': 2.0}, {'ratio': 1.5}])!r})")
    fields = {"id": "ratio", "text": f"{limit} times", "script": str(script), "key": "*/ratio", "at_most": limit}
    lines = [f"{name} = {json.dumps(value)}" for name, value in (fields | {"quick": True}).items()]
    ledger = tmp_path / "claims.toml"
    ledger.write_text("\n".join(["[[claim]]", *lines]))
    runner = [sys.executable, claims.__file__, "--quick", "--ledger", str(ledger)]
    result = subprocess.run(runner, capture_output=True, text=True, check=False)
    assert result.returncode == code, result.stderr
    assert ("1 no longer hold" in result.stdout) == bool(code)


def test_settings_are_on_their_pages() -> None:
    assert [item for item in LEDGER["setting"] if any(item["text"] not in PAGES[page] for page in item["pages"])] == []
