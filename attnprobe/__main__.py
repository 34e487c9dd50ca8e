"""`python -m attnprobe` is the command `attnprobe`."""

import sys

from attnprobe.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
