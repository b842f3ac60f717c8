"""The command line: one module for each kind of command."""

from lodekit.cli import reproduction, systems
from lodekit.cli.app import app
from lodekit.cli.app import run as main

__all__ = ["app", "main", "reproduction", "systems"]
