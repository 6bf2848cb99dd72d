"""The command `jiyi`: one file for each group of commands, `app` to run them.

Exit code 0: done; 1: failed; 2: wrong usage; 130: interrupted. An error is one line on standard error.
"""

from jiyi.cli.app import main

__all__ = ["main"]
