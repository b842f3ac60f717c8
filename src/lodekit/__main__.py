"""``python -m lodekit``: the same as the command ``lodekit``."""

from lodekit.cli import main

if __name__ == "__main__":
    main()
