"""Documents with another value at one of their places."""

import copy


def places(value, path=()):
    """Every place in a document, as a path of keys and indexes."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in parts:
        yield from places(item, (*path, key))


def changed(document, path, value):
    """The document with another value at a place; without the place where the value is KeyError."""
    if not path:
        return value
    document = at = copy.deepcopy(document)
    for key in path[:-1]:
        at = at[key]
    if value is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return document
