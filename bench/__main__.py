"""`python -m bench`: the step-time ratios."""

from .step_ratio import main

raise SystemExit(main())
