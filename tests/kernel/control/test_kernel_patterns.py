"""Names, types and expressions: they match what the dumper matches (seen on MindSpore 2.7.0 and 2.10.0)."""

from __future__ import annotations

import pytest
from probe_format.errors import Problem
from probe_kernel.control.kernel_patterns import KernelPattern, parse_kernel

CONV = "Default/network-Net/conv-Conv2d/Conv2D-op12"
GRAD = "Gradients/Default/conv-Conv2d/Conv2DBackpropFilter-op3"


@pytest.mark.parametrize(
    ("text", "kind", "conv", "grad"),
    [
        (CONV, "name", True, False),
        ("conv", "type", True, True),
        ("CONV2D", "type", True, True),
        ("Filter", "type", False, True),
        ("Conv2d/", "name", False, False),
        ("Default", "type", False, False),  # a type is looked for in the last part only
        ("name-regex(Default/.+)", "regex", True, False),  # and an expression must match the whole name
        ("name-regex(.*Conv2D.*)", "regex", True, True),
        ("name-regex(Default)", "regex", False, False),
        ("name-regex(default/.+)", "regex", False, False),
        ("name-regex(.*/(Conv2D|ReLU)-op[0-9]+)", "regex", True, False),
        ("name-regex(.*op[[:digit:]]+)", "regex", True, True),
        ("name-regex(.*-op(?!12).*)", "regex", False, True),
    ],
)
def test_what_matches(text: str, kind: str, conv: bool, grad: bool) -> None:
    pattern = parse_kernel(text, "kernels[0]")
    assert isinstance(pattern, KernelPattern)
    assert (pattern.kind, pattern.matches(CONV), pattern.matches(GRAD)) == (kind, conv, grad)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (3, "is a int"),
        ("", "is empty"),
        ("Conv 2D", 'Write "Conv2D"'),
        ('a"b', "quotation mark"),
        ("name-regex(Default/.+", "no closing bracket"),
        ("Name-Regex(Default/.+)", 'Write "name-regex(Default/.+)"'),
        ("name_regex(a)", 'Write "name-regex(a)"'),
        ("regex(a)", 'Write "name-regex(a)"'),
        ("conv*", 'Write "name-regex(conv.*)"'),
        ("Default/.+", 'Write "name-regex(Default/.+)"'),
        ("Default\\conv", 'Write "Default/conv"'),
        ("name-regex()", "matches nothing"),
        (r"name-regex(.*op\d+)", 'Write "name-regex(.*op[0-9]+)"'),
        (r"name-regex(a\.b)", 'Write "name-regex(a[.]b)"'),
        ("name-regex((?<=a)b)", "ECMAScript"),
        ("name-regex((?i)a)", "ECMAScript"),
        ("name-regex((?P<x>a))", "ECMAScript"),
        ("name-regex(a)+)", "not a regular expression"),
        ("name-regex((a)", "not a regular expression"),
        ("name-regex([a)", "not a regular expression"),
        ("name-regex(*a)", "not a regular expression"),
    ],
)
def test_what_is_refused(text: object, says: str) -> None:
    problem = parse_kernel(text, "kernels[0]")
    assert isinstance(problem, Problem) and says in str(problem)
    assert problem.where == "kernels[0]"
    assert problem.remedy
