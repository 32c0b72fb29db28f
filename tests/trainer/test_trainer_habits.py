"""With any style of loop, an interrupted run has bitwise the losses and weights of an uninterrupted one."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
import trainer_habits
import trainer_setups
from everspot_core.jobs.records import Reason
from everspot_train.rundir import StopRequest
from everspot_train.trainer import RunStopped
from everspot_train.trainer.digests import flatten
from everspot_train.trainer.model_setup import plain_name
from trainer_post import Post
from trainer_state import read_shared

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's own call
]

STOPS = (2, 4, 5, trainer_habits.TOTAL - 1)  # before and after what happens at step 3, and twice in a row
ORDINARY = trainer_habits.LOOPS | trainer_setups.LOOPS
LOOPS = ORDINARY | trainer_setups.NIGHTLY_LOOPS
EACH_HABIT = [pytest.param(name, STOPS[:2], id=name) for name in ORDINARY]
OFTEN = [pytest.param(name, STOPS, id=f"{name}, often", marks=pytest.mark.nightly) for name in LOOPS]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.compiler.reset()


@pytest.mark.parametrize(("name", "stops"), EACH_HABIT + OFTEN)
def test_an_interrupted_loop_ends_like_an_undisturbed_one(
    name: str, stops: tuple[int, ...], post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = LOOPS[name]
    monkeypatch.delenv("EVERSPOT_RUN_DIR", raising=False)
    whole: list[str] = []
    outcome = flatten("", loop(whole, lambda step: None))

    lines: list[str] = []
    for epoch, at in enumerate((*stops, None), 1):
        current = post(epoch)
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(current.root))

        def stop(step: int, current: Post = current, at: int | None = at) -> None:
            if step == at:
                current.rundir.write(StopRequest(reason=Reason.NOTICE))

        with contextlib.suppress(RunStopped):
            weights = loop(lines, stop)
        assert (current.status.resumed_from or 0) == (stops[epoch - 2] if epoch > 1 else 0)
    assert lines == whole
    assert flatten("", weights) == outcome
    assert (current.status.phase, current.status.complete) == ("finished", True)
    plain = {plain_name(name): value for name, value in weights.items()}  # whichever blocks are compiled
    assert stored_model(current).keys() <= plain.keys()
    assert all(torch.equal(value, plain[n]) for n, value in stored_model(current).items()), "of the end of the with"


def stored_model(post: Post) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = read_shared(post)["model"]
    return model
