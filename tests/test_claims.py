"""Numbers about speed, size, accuracy and coverage on the pages come from the ledger, and the ledger is checked."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import claims

ROOT = Path(__file__).parents[1]
LEDGER = claims.read_ledger()
PAGES = claims.read_pages()
FIELDS = {"id", "text", "pages", "script", "key", "measured", "machine", "commit", "date", "quick"}


def find_all_faults(ledger: dict[str, Any]) -> list[str]:
    return [fault for claim in ledger["claim"] for fault in claims.find_faults(claim, PAGES)]


def test_pages_contain_only_measured_numbers_of_the_ledger() -> None:
    unclaimed = {page: claims.find_unclaimed(page, text, LEDGER) for page, text in PAGES.items()}
    assert {page: found for page, found in unclaimed.items() if found} == {}


def test_a_new_number_on_a_page_is_noticed() -> None:
    text = PAGES["README.md"] + " Fits take 0.3 s, 12 times less than before. | rows | error | | 10 of 20 | < 1e-9 |"
    assert claims.find_unclaimed("README.md", text, LEDGER) == ["0.3 s", "12 times", "10 of 20", "< 1e-9"]


def test_levels_and_sizes_of_noise_are_settings() -> None:
    text = "95 % bands, 50 and 95 % regions, noise of 0.2 to 5 %, 3 % noise, at the level of 5 %, the 80 % quantile"
    assert claims.find_unclaimed("README.md", text, LEDGER) == []


def test_entries_are_complete_and_printed_on_their_pages() -> None:
    assert [claim["id"] for claim in LEDGER["claim"] if not claim.keys() >= FIELDS] == []
    assert len({claim["id"] for claim in LEDGER["claim"]}) == len(LEDGER["claim"])
    assert [claim["id"] for claim in LEDGER["claim"] if not (ROOT / claim["script"].split()[0]).exists()] == []
    assert find_all_faults(LEDGER) == []


def test_recorded_measurements_satisfy_their_claims() -> None:
    # A list of one number at the key "0" stands for the output of the script; of a table no cell differed.
    numbers = [claim for claim in LEDGER["claim"] if not claim["text"].startswith("|")]
    recorded = [({**claim, "key": "0", "factor": 1.0}, [claim["measured"]]) for claim in numbers]
    assert [claim["id"] for claim, found in recorded if not claims.judge(claim, found)[0]] == []
    assert {claim["measured"] for claim in LEDGER["claim"] if claim not in numbers} == {0}


def change_value(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a claim with another value, or with another digit in its table."""
    if claim["text"].startswith("|"):
        digit = re.search(r"(?<=\| )\d", claim["text"])
        place = digit.start() if digit else claim["text"].index("right")
        return {**claim, "text": claim["text"][:place] + "7777" + claim["text"][place:]}
    check = next(name for name in claims.CHECKS if name in claim)
    return {**claim, check: 1.07 * claim[check] + 0.001}


@pytest.mark.parametrize("claim", LEDGER["claim"], ids=lambda claim: str(claim["id"]))
def test_changing_one_value_of_the_ledger_is_noticed(claim: dict[str, Any]) -> None:
    assert find_all_faults({"claim": [change_value(claim)]}) != []


@pytest.mark.parametrize(("old", "new", "code"), [("", "", 0), ("at_most = 1.5\n", "at_most = 1.6\n", 1)])
def test_the_runner_compares_the_ledger_with_the_pages(old: str, new: str, code: int, tmp_path: Path) -> None:
    ledger = tmp_path / "claims.toml"
    ledger.write_text(claims.LEDGER.read_text().replace(old, new))
    # No claim has this id, so nothing is measured.
    runner = [sys.executable, claims.__file__, "--only", "none", "--ledger", str(ledger)]
    assert subprocess.run(runner, capture_output=True, check=False).returncode == code


@pytest.mark.parametrize(
    ("line", "differing"),
    [
        ("| 2 % | lodekit | 0.60 → 97 % | < 1e-9 |", 0),
        ("| 2 % | lodekit | 0.70 → 97 % | < 1e-9 |", 1),
        ("| 2 % | lodekit | 0.60 % | 0.02 |", 2),
    ],
)
def test_tables_are_compared_cell_by_cell(line: str, differing: int) -> None:
    rows = "| noise | tool | error | left |\n| 2 % | lodekit | 0.59 → 96 % | < 1e-9 |\n| 2 % | other | 8.6 | 1 |"
    claim = {"text": rows, "labels": 2, "tolerance": 0.05}
    assert claims.count_differences(claim, [line]) == differing
    assert math.isnan(claims.count_differences(claim, ["| 10 % | lodekit | 0.59 % | 1 |"]))


def test_rows_of_a_table_that_were_not_measured_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    claim = {"text": "| tool | error |\n| --- | ---: |\n| lodekit | 1 |\n| another tool | 2 |"}
    assert claims.count_differences(claim, ["| lodekit | 1 |"]) == 0
    assert capsys.readouterr().out == "not measured here: another tool\n"


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


def test_the_runner_goes_on_after_a_script_that_fails(tmp_path: Path) -> None:
    bodies = {
        "raises": "raise SystemExit('no such sensor')",
        "writes_half": "import sys; open(sys.argv[2], 'w').write('[1.0')",
        "lacks_the_key": "import sys; open(sys.argv[2], 'w').write('{}')",
        "works": "import sys; open(sys.argv[2], 'w').write('[1.0]')",
    }
    lines = []
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(body)
        fields = {"id": name, "text": "1 time", "script": str(tmp_path / f"{name}.py"), "key": "0", "at_most": 1.0}
        lines += ["[[claim]]", *(f"{key} = {json.dumps(value)}" for key, value in (fields | {"quick": True}).items())]
    ledger = tmp_path / "claims.toml"
    ledger.write_text("\n".join(lines))
    runner = [sys.executable, claims.__file__, "--ledger", str(ledger)]
    result = subprocess.run(runner, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert re.findall(r"^(BROKEN|holds) +(\w+) ", result.stdout, re.MULTILINE) == [
        ("BROKEN", "raises"),
        ("BROKEN", "writes_half"),
        ("BROKEN", "lacks_the_key"),
        ("holds", "works"),
    ]
    assert "no such sensor" in result.stdout
    assert "4 claims, 3 no longer hold\n  raises\n  writes_half\n  lacks_the_key\n" in result.stdout


@pytest.mark.parametrize("name", ["../no/such/file.csv", "no.such.module", "no_such_program"])
def test_what_is_missing_is_not_available(name: str) -> None:
    assert not claims.is_available(name)


def test_settings_are_on_their_pages() -> None:
    texts = [(claims.prose(item["text"]), page) for item in LEDGER["setting"] for page in item["pages"]]
    assert [(text, page) for text, page in texts if text not in PAGES[page]] == []
