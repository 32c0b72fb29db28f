"""A loop's steps are timed, with its waits for batches, and reported to the agent."""

from collections.abc import Callable
from pathlib import Path

from everspot_train.trainer.loop_timing import LoopTiming
from trainer_post import Post


def test_steps_count_without_what_lies_between_them() -> None:
    seconds = 0.0
    timing = LoopTiming(lambda: seconds)
    timing.end_step()  # none had begun
    for wait, compute, between in ((1.0, 2.0, 50.0), (3.0, 2.0, 7.0)):
        timing.begin_step()
        for _ in range(2):  # two batches make a step
            with timing.waiting():
                seconds += wait
            seconds += compute
        timing.end_step()
        seconds += between
    assert (timing.steps, timing.loop_seconds, timing.wait_seconds) == (2, 16.0, 8.0)


def test_the_agent_is_told_how_long_steps_take_and_wait(post: Callable[..., Post], tmp_path: Path) -> None:
    run = post()
    run.run(tmp_path / "losses", STOP_AT=17)
    status = run.status
    assert status.loop_steps == 17
    assert status.loop_seconds is not None and status.data_wait_seconds is not None
    assert 0 < status.data_wait_seconds < status.loop_seconds
