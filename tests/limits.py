"""Code in a process of its own, with bounds on memory and time: what blows up fails there, and nothing else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1]
#: Seconds after which a process counts as hanging; a busy machine needs far more than an idle one.
PATIENCE = 900

_PRELUDE = """
import json, resource, sys
import lodekit as lk
from lodekit.data.sources import load_data
answers = {{}}
def ask(name, function):
    try:
        answers[name] = str(function())
    except lk.LodekitError as problem:
        answers[name] = f"{{type(problem).__name__}}: {{problem}}"
    except MemoryError:
        answers[name] = "MemoryError"
lk.LODEGP  # loaded before the bound is set: libraries reserve much that they do not use
pages = int(open("/proc/self/statm").read().split()[0])
bound = pages * resource.getpagesize() + {megabytes} * 2**20
resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
"""


def ask_bounded(code: str, megabytes: int = 500, seconds: int = PATIENCE) -> dict[str, str]:
    """Return what code has asked with ``ask(name, function)``: answers as text, or the class of an error and its words.

    Parameters
    ----------
    code : str
        Knows ``lk`` and ``load_data``.
    megabytes : int
        How much memory it may take beyond what the libraries take when they are loaded.
    seconds : int
        After which it is ended.
    """
    # Threads reserve memory of their own, which would count; and every core reads a piece of its own.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["LOKY_MAX_CPU_COUNT"] = "2"
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCES / "src"), str(SOURCES)])
    text = _PRELUDE.format(megabytes=megabytes) + code + "\nprint(json.dumps(answers))\n"
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: Any = json.loads(done.stdout.splitlines()[-1])
    return dict(found)
