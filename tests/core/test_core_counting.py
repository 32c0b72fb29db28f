"""Counts and sizes in words."""

import pytest
from everspot_core.counting import counted, first_few, size


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1 KB"), (1234, "1.23 KB"), (30_900_000, "30.9 MB"),
     (999_499, "999 KB"), (999_960, "1 MB"), (5e12, "5 TB"), (12_345e12, "12,345 TB")],
)  # fmt: skip
def test_a_size_has_three_digits_and_a_unit(count: float, expected: str) -> None:
    assert size(count) == expected


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [(0, "file", "0 files"), (1, "package", "1 package"), (12_000, "unit", "12,000 units")],
)
def test_one_thing_is_not_told_in_the_plural(count: int, noun: str, expected: str) -> None:
    assert counted(count, noun) == expected


@pytest.mark.parametrize(("most", "expected"), [(3, "a, b, c"), (2, "a, b and 1 more"), (1, "a and 2 more")])
def test_what_is_left_out_of_a_list_is_counted(most: int, expected: str) -> None:
    assert first_few(["a", "b", "c"], most) == expected
