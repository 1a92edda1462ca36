"""`python -m experiments.rules`."""

import sys

from experiments.rules import main

sys.exit(main())
