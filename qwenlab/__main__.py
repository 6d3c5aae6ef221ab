"""`python -m qwenlab`: see `qwenlab.cli`."""

import sys

from qwenlab.cli import main

sys.exit(main())
