"""Replaced attributes come and go with those who hold them."""

import pytest
from probe_runtime.patching.shared_replacement import HeldPatches


class Base:
    def speak(self):
        return "base"


class Child(Base):
    def sing(self):
        return "la"


def _louder(original):
    return lambda self: original(self).upper()


def _patches():
    def install(replace):
        replace(Child, "speak", _louder)
        replace(Child, "sing", _louder)
        replace(Child, "absent", _louder)

    return HeldPatches(install)


def test_the_last_holder_takes_it_away():
    patches, before = _patches(), dict(vars(Child))
    one, two = patches.hold(), patches.hold()
    assert Child().speak() == "BASE" and Child().sing() == "LA" and Base().speak() == "base"
    one.undo()
    one.undo()
    assert patches.active and Child().sing() == "LA"
    two.undo()
    assert not patches.active and dict(vars(Child)) == before


def test_a_with_block_lets_go_when_it_raises():
    patches = _patches()
    with pytest.raises(KeyError), patches.hold():
        raise KeyError
    assert Child().speak() == "base" and "speak" not in vars(Child)


def test_what_was_wrapped_meanwhile_stays():
    patches, original = _patches(), Child.sing
    with patches.hold():
        ours = Child.sing
        Child.sing = lambda self: f"<{ours(self)}>"
    try:
        assert Child().sing() == "<LA>" and not patches.active
    finally:
        Child.sing = original


def test_a_failed_start_leaves_nothing():
    def install(replace):
        replace(Child, "sing", _louder)
        raise RuntimeError("half way")

    patches = HeldPatches(install)
    with pytest.raises(RuntimeError, match="half way"):
        patches.hold()
    assert Child().sing() == "la" and not patches.active


def test_the_last_to_let_go_is_told_when_all_is_back():
    told = []
    patches = HeldPatches(
        lambda replace: replace(Child, "sing", _louder), lambda: told.append(Child().sing())
    )
    with patches.hold():
        with patches.hold():
            pass
        assert told == []
    assert told == ["la"]
