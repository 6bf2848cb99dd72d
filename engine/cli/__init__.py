"""The command `jiyi`: one file for each group of commands, `app` to run them.

Exit code 0: done. 1: failed: what is to be read is not there, is damaged or in use, something cannot be written, or
the answer is no (`verify`, `replay`, `reindex --min-overlap`). 2: wrong usage: what the command line asks for cannot be
done, such as an option or value that does not exist, or a target that is there already; nothing was done. 130:
interrupted. An error is one line on standard error.
"""

from jiyi.cli.app import main

__all__ = ["main"]
