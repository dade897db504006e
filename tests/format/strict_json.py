"""JSON as its specification has it: no bare NaN or Infinity, and each key once."""

import json


def strict(raw):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    def unique(pairs):
        assert len({key for key, _ in pairs}) == len(pairs), "repeated keys"
        return dict(pairs)

    return json.loads(raw, parse_constant=refuse, object_pairs_hook=unique)
