"""A process's first step is compared with its second, without the time between steps."""

from datetime import timedelta

from everspot_store import ManualClock
from everspot_train.trainer.warmup import Warmup


def test_two_steps_are_timed_without_what_lies_between_them_and_told_once() -> None:
    clock = ManualClock()
    warmup = Warmup(clock)
    timed_steps = []
    for step, between in ((30.0, 5.0), (2.0, 7.0), (1.0, 0.0), (1.0, 0.0)):
        timed_steps.append(warmup.ended())
        clock.advance(timedelta(seconds=between))
        warmup.begins()
        clock.advance(timedelta(seconds=step))
    assert timed_steps == [False, False, True, False]
    assert warmup.seconds() == (30.0, 2.0)
    assert not warmup.ended()
