"""`python -m stormpsr` is the command line."""

import sys

from stormpsr.cli import main

if __name__ == "__main__":
    sys.exit(main())
