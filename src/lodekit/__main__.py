"""``python -m lodekit``, and the command ``lodekit``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interruption while it is loaded ends it quietly, too."""
    try:
        from lodekit.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
