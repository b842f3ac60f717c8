"""No text makes the grammar raise anything but a LodekitError, hang, or use unbounded memory."""

import subprocess
import sys
from pathlib import Path

from tests.limits import PATIENCE


def test_random_texts_are_read_or_refused() -> None:
    """A fixed budget of texts; the script bounds memory by the system and every text by a clock."""
    script = Path(__file__).with_name("grammar_fuzzer.py")
    done = subprocess.run(
        [sys.executable, str(script), "11", "6000", "40"], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    tried, accepted = (int(word) for word in done.stdout.split() if word.isdigit())
    assert tried >= 500
    assert accepted >= 5
