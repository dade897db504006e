"""Time no example of a property, as the machine may be busy: importing this loads the profile.

Only the conftest.py of a folder with property tests imports it: hypothesis is not in the environment of every framework.
"""

from hypothesis import settings

settings.register_profile("probe", deadline=None)
settings.load_profile("probe")
