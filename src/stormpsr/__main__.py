"""`python -m stormpsr` is the command line."""

import sys

from stormpsr.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
