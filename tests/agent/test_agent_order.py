"""The first file of a program's rounds, if the program writes several rounds between two scans."""

import random
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_train.agent.artifacts.assess import ProgramEnd
from everspot_train.agent.artifacts.order import TimedWrite, WriteOrder
from folder_helpers import Place, restore_tree, write

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def looks(
    names: str, gap: int, pause: int, seed: int, best: int = 0
) -> Iterator[tuple[list[TimedWrite], timedelta, int]]:
    """Yield the results of scans at random times, about a second apart. The files are written `gap` ms after each
    other, with a pause of `pause` ms after each round, and a file `z` after the first `best` rounds."""
    dice, period = random.Random(seed), gap * (len(names) - 1) + pause
    before = 0
    for second in range(1, 60):
        now = second * 1000 + dice.randrange(500)
        last = {name: (now - n * gap) // period * period + n * gap for n, name in enumerate(names)}
        if best and before < best * period:
            last["z"] = min(now // period, best) * period - pause + 1
        writes = [TimedWrite(name.encode(), at * MILLISECOND) for name, at in last.items() if at > before]
        yield sorted(writes, key=lambda write: write.ctime_ns), timedelta(seconds=second), now * MILLISECOND
        before = now


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("names", "gap", "pause"), [("abc", 50, 250), ("ab", 20, 100), ("abcdefgh", 10, 90)])
def test_the_first_file_is_found_by_the_pause_before_it(names: str, gap: int, pause: int, seed: int) -> None:
    order = WriteOrder()
    leaders = []
    for look in looks(names, gap, pause, seed):
        order.observe(*look)
        leaders.append(order.leader)
    assert order.is_fast
    assert leaders[-1] == b"a"
    assert leaders[:3] == [None] * 3


@pytest.mark.parametrize("seed", range(5))
def test_a_file_of_the_first_rounds_alone_does_not_hide_the_first_file(seed: int) -> None:
    order = WriteOrder()
    for look in looks("abc", 50, 250, seed, best=6):
        order.observe(*look)
    assert (order.leader, order.templates) == (b"a", frozenset((b"a", b"b", b"c")))


def test_without_a_pause_between_the_rounds_it_is_not_known() -> None:
    order = WriteOrder()
    for look in looks("abc", 50, 60, 1):
        order.observe(*look)
    assert (order.is_fast, order.leader) == (True, None)


def test_the_time_that_a_file_takes_to_be_written_is_no_pause() -> None:
    order = WriteOrder()
    for number in range(1, 30):  # a, then 0.9 s later b, which has been written all the time, and 0.1 s later a
        start = number * SECOND
        writes = [TimedWrite(b"a", start, 1000), TimedWrite(b"b", start + 900 * MILLISECOND, 40_000_000)]
        order.observe(writes, timedelta(seconds=number), start + 950 * MILLISECOND)
    assert (order.is_fast, order.leader) == (True, None)


def test_a_program_that_pauses_for_longer_than_the_looks_is_not_fast() -> None:
    order = WriteOrder()
    for second in range(0, 100, 10):
        writes = [TimedWrite(b"a", second * SECOND), TimedWrite(b"b", second * SECOND + 5 * MILLISECOND)]
        order.observe(writes, timedelta(seconds=second), second * SECOND + 9 * MILLISECOND)
    assert not order.is_fast


def test_a_program_that_has_written_twice_in_a_row_and_then_slowly_is_not_fast() -> None:
    order = WriteOrder()
    for second in (0, 1, 30, 60, 90):
        writes = [TimedWrite(b"a", second * SECOND), TimedWrite(b"b", second * SECOND + 5 * MILLISECOND)]
        order.observe(writes, timedelta(seconds=second), second * SECOND + 9 * MILLISECOND)
        assert order.is_fast == (second == 1)


def test_two_rounds_are_not_mixed_though_the_first_look_came_in_the_middle_of_one(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=1))
    keeper.restore()
    names = ("model.npy.json", "optimizer.json", "progress.json")
    for name in names:
        write(keeper, name, "1000")
    for number in range(1001, 1006):
        write(keeper, names[0], f"{number}")  # the look comes here: it sees optimizer, progress, model
        place.look(keeper)
        for name in names[1:]:
            write(keeper, name, f"{number}")
        time.sleep(0.3)  # the program's pause after a round
    write(keeper, names[0], "1006")
    keeper.keep_last(ProgramEnd.KILLED)
    head = place.store.checkpoints("job-1").head()
    if head is not None and head.checkpoints:
        assert len(set(restore_tree(place, 2).values())) == 1


def test_whole_rounds_are_kept_of_a_program_that_writes_them_faster_than_the_looks_come(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=1))
    keeper.restore()
    names = ("model.npy.json", "optimizer.json", "progress.json")
    for number in range(1000, 1006):
        for name in names:
            write(keeper, name, f"{number}")
        time.sleep(0.5)
        place.look(keeper)
    assert set(restore_tree(place, 2, fence=False).values()) == {"1005"}
    write(keeper, names[0], "1006")
    keeper.keep_last(ProgramEnd.KILLED)
    assert set(restore_tree(place, 3).values()) == {"1005"}
