"""Replacing a framework's functions for a while: the parts that know no framework.

`apilist` reads which names; `lookup` and `places` find what stands there; `early` finds who else holds it;
`patches` puts the stand-ins in place and the originals back; `guests` and `pickles` keep copies, pickles and imports
as they would be; `regions` marks what is not the model; `switch` is what every stand-in asks first.
"""

__all__: list[str] = []
