"""Time no example of a property, as the machine may be busy: importing this loads the profile.

Only the conftest.py of a folder without a framework imports it: not every framework's environment has hypothesis.
"""

from hypothesis import settings

settings.register_profile("probe", deadline=None)
settings.load_profile("probe")
