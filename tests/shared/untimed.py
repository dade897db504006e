"""Time no example of a property, nor how one is made, as the machine may be busy: importing this loads the profile.

Where CI is set, as .ci/run does, hypothesis also draws the same examples each time; with PROBE_SOAK=1 it draws more.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "probe",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=400 if os.environ.get("PROBE_SOAK") else 30,
)
settings.load_profile("probe")
