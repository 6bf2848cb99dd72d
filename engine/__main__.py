"""`python -m jiyi` is the command `jiyi`."""

import sys

from jiyi.cli import main

if __name__ == "__main__":
    sys.exit(main())
