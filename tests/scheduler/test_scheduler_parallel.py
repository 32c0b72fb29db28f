"""Calls that are made together: each is made, whichever of the others fail."""

import pytest
from everspot_scheduler.parallel import SEQUENTIAL_UP_TO, run_parallel


@pytest.mark.parametrize("count", [1, 3, SEQUENTIAL_UP_TO, SEQUENTIAL_UP_TO + 1, 100])
def test_all_calls_are_made_and_the_first_error_is_raised(count: int) -> None:
    calls = list[int]()

    def call(number: int) -> int:
        calls.append(number)
        if number % 2 == 0:
            raise ValueError(str(number))
        return number

    with pytest.raises(ValueError, match=r"^0$"):
        run_parallel(call, range(count))
    assert sorted(calls) == list(range(count))


def test_results_are_in_the_order_of_the_items() -> None:
    for count in (0, SEQUENTIAL_UP_TO, 100):
        assert run_parallel(str, range(count)) == [str(number) for number in range(count)]
