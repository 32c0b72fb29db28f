"""With any data source, an interrupted run has bitwise the losses and weights of an uninterrupted one."""

import contextlib
import copy
import itertools
import multiprocessing
import pickle
import random
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trainer_feeds
from everspot_core.jobs.records import Reason
from everspot_train.rundir import StopRequest
from everspot_train.trainer import Run, RunStopped, resumable_loader, sampled
from everspot_train.trainer.feeds import as_feed
from everspot_train.trainer.generators import find_generators
from everspot_train.trainer.randomness import LoopRandomness
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Sampler
from trainer_feeds import LENGTH, Net, Plain
from trainer_post import Post

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine of one core
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's own call
]

TOTAL = 13
STOPS = (1, 4, 10)  # after the first batch, before an epoch's last, and at its end
NIGHTLY = pytest.mark.nightly

Body = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(make: Callable[[], Any], lines: list[str], stop: Callable[[int], None], body: Any = None) -> None:
    """Append the loss of each step as exact text, and at last the weights."""
    trainer_feeds.MODULE_RNG = np.random.default_rng(1)  # a new process would begin like this
    trainer_feeds.ByClass.rng = random.Random(2)
    with Run.open(seed=3, precision="fp32") as run:
        model = run.prepare(Net())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        change: Body = body() if body else torch.clone
        run.track(model=model, optimizer=optimizer, loader=make())
        for batch in run.batches(TOTAL):
            x = change(batch.reshape(-1, 2))
            run.step((model(x).squeeze(-1) - x[:, 0]).square().mean() + x[:, 1].mean())
            lines.append(f"{run.steps_done} {run.last_loss.hex()}")
            stop(run.steps_done)
        lines += [str(value.tolist()) for value in model.state_dict().values()]


def undisturbed(make: Callable[[], Any], body: Any = None) -> list[str]:
    lines: list[str] = []
    train(make, lines, lambda _: None, body)
    return lines


def interrupted(
    tmp_path: Path, patch: pytest.MonkeyPatch, stops: tuple[int, ...], make: Callable[[], Any], body: Any = None
) -> list[str]:
    """The same of a run that is stopped after each of `stops` and resumed."""
    return interruptions(tmp_path, patch, lambda lines, stop: train(make, lines, stop, body), stops)


def interruptions(
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    run_once: Callable[[list[str], Any], None],
    stops: tuple[int, ...] = STOPS,
) -> list[str]:
    """What several attempts append, each of which but the last is stopped."""
    lines: list[str] = []
    for epoch, at in enumerate((*stops, None), 1):
        post = Post(root=tmp_path / f"run-{epoch}", store_root=tmp_path / "store", epoch=epoch)
        patch.setenv("EVERSPOT_RUN_DIR", str(post.root))

        def stop(step: int, post: Post = post, at: int | None = at) -> None:
            if step == at:
                post.rundir.write(StopRequest(reason=Reason.NOTICE))

        with contextlib.suppress(RunStopped):
            run_once(lines, stop)
        assert (post.status.resumed_from or 0) == (stops[epoch - 2] if epoch > 1 else 0)
    patch.delenv("EVERSPOT_RUN_DIR")
    return lines


def each_feed(table: dict[str, Any]) -> pytest.MarkDecorator:
    """Parametrize by the names of `table`. Each is stopped at one step in turn, in the nightly run at all of them."""
    once = [pytest.param(name, (STOPS[index % len(STOPS)],), id=name) for index, name in enumerate(table)]
    often = [pytest.param(name, STOPS, id=f"{name}, often", marks=NIGHTLY) for name in table]
    return pytest.mark.parametrize(("name", "stops"), once + often)


@each_feed(trainer_feeds.SAMPLED)
def test_the_order_goes_on_whatever_chooses_it(
    name: str, stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = trainer_feeds.SAMPLED[name]
    assert interrupted(tmp_path, monkeypatch, stops, make) == undisturbed(make)


@each_feed(trainer_feeds.GENERATORS)
def test_generators_that_the_feed_refers_to_go_on(
    name: str, stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = trainer_feeds.GENERATORS[name]
    lines = interrupted(tmp_path, monkeypatch, stops, make)
    if name != "not seeded":  # its first attempt decides
        assert lines == undisturbed(make)


@each_feed(trainer_feeds.IN_WORKERS)
def test_random_numbers_of_workers_go_on(
    name: str, stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = trainer_feeds.IN_WORKERS[name]
    lines = interrupted(tmp_path, monkeypatch, stops, make)
    assert not multiprocessing.active_children()  # they end with their run
    if not name.startswith("not seeded"):
        assert lines == undisturbed(make)


@each_feed(trainer_feeds.STATEFUL)
def test_feeds_with_a_state_of_their_own_go_on(
    name: str, stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = trainer_feeds.STATEFUL[name]
    assert interrupted(tmp_path, monkeypatch, stops, make) == undisturbed(make)


@each_feed(trainer_feeds.LOOPS)
def test_generators_that_the_loop_draws_from_go_on(
    name: str, stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, body = trainer_feeds.SAMPLED["shuffled"], trainer_feeds.LOOPS[name]
    assert interrupted(tmp_path, monkeypatch, stops, make, body) == undisturbed(make, body)


def test_a_generator_that_lies_out_of_sight_goes_in_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_once(lines: list[str], stop: Callable[[int], None]) -> None:
        drawers = [np.random.default_rng(n) for n in range(100)]  # further behind than anything is searched
        with Run.open(seed=3, precision="fp32") as run:
            model = nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = trainer_feeds.plain(shuffle=True)
            run.track(model=model, optimizer=optimizer, loader=loader, noise=drawers[99])
            for _ in run.batches(TOTAL):
                run.step(model(torch.full((1, 1), drawers[99].random())).square().sum())
                lines.append(run.last_loss.hex())
                stop(run.steps_done)

    whole: list[str] = []
    run_once(whole, lambda _: None)
    assert interruptions(tmp_path, monkeypatch, run_once) == whole


def test_what_is_drawn_between_restoring_and_the_loop_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_once(lines: list[str], stop: Callable[[int], None]) -> None:
        data = trainer_feeds.Holding()
        with Run.open(seed=3, precision="fp32") as run:
            model = run.prepare(Net())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            run.track(model=model, optimizer=optimizer, loader=trainer_feeds.stateful(data, shuffle=True))
            if run.restore() is not None:  # a sanity check of what was loaded
                model(torch.randn(3, 2) * random.random() * np.random.normal())
                next(iter(trainer_feeds.plain(data, shuffle=True)))
            for x in run.batches(TOTAL):
                run.step(model(x).sum() + x.sum() / 100)
                lines.append(run.last_loss.hex())
                stop(run.steps_done)

    whole: list[str] = []
    run_once(whole, lambda _: None)
    assert interruptions(tmp_path, monkeypatch, run_once) == whole


def test_a_second_loop_goes_on_where_the_first_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two phases, as for a warm-up or layers that are frozen at first."""
    indices: list[int] = []

    def run_once(lines: list[str], stop: Callable[[int], None]) -> None:
        with Run.open(seed=3, precision="fp32") as run:
            model = run.prepare(Net())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            loader = trainer_feeds.plain(trainer_feeds.Holding(), shuffle=True)
            run.track(model=model, optimizer=optimizer, loader=loader)
            for total in (3, TOTAL):
                torch.rand(1)  # whatever lies between two phases
                for x in run.batches(total):
                    indices.extend(x[:, 0].int().tolist())
                    run.step(model(x).sum() + x.sum() / 100)
                    lines.append(run.last_loss.hex())
                    stop(run.steps_done)

    whole: list[str] = []
    run_once(whole, lambda _: None)
    assert sorted(indices[:LENGTH]) == list(range(LENGTH))
    assert interruptions(tmp_path, monkeypatch, run_once) == whole


def orders(loader: Any, epochs: int) -> list[list[int]]:
    feed = as_feed(loader)
    return [[int(x) for batch in feed.open_epoch() for x in batch[:, 0]] for _ in range(epochs)]


def test_each_epoch_has_its_number_and_a_distributed_sampler_another_order() -> None:
    sampler = DistributedSampler(Plain(), num_replicas=1, rank=0)
    first, second = orders(trainer_feeds.plain(sampler=sampler), 2)
    assert first != second
    assert sampler.epoch == 1

    class Numbered(trainer_feeds.Curriculum):
        numbers: list[int] = []  # noqa: RUF012

        def set_epoch(self, epoch: int) -> None:
            self.numbers.append(epoch)

    orders(trainer_feeds.plain(batch_size=1, batch_sampler=Numbered()), 3)
    assert Numbered.numbers == [0, 1, 2]


def test_the_programs_own_loader_stays_as_it_is() -> None:
    loader = trainer_feeds.plain(trainer_feeds.Holding(), shuffle=True, num_workers=1)
    before = dict(loader.__dict__)
    orders(loader, 1)
    assert loader.__dict__ == before


def test_a_position_of_another_number_of_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = as_feed(trainer_feeds.plain(shuffle=True))
    next(feed.open_epoch())
    state = feed.state_dict()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"position of 1 ranks is none of 2.*resumable_loader"):
        as_feed(trainer_feeds.plain(shuffle=True)).load_state_dict(state)


class Resumable(Sampler[int]):
    """Has its position in its state, as people write it."""

    def __init__(self) -> None:
        self.position, self.order = 0, list(range(LENGTH))

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[int]:
        while self.position < LENGTH:
            self.position += 1
            yield self.order[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.order = state["position"], state["order"]


def drawn_in_pieces() -> RandomSampler:
    """torch draws 32 indices at a time, from the generator that the program holds."""
    return RandomSampler(Plain(), replacement=True, num_samples=80, generator=trainer_feeds.generator())


OTHER_WORKERS: dict[str, Callable[[], dict[str, Any]]] = {
    "position in its state": lambda: {"sampler": Resumable()},
    "generator, in pieces": lambda: {"sampler": drawn_in_pieces()},
    "generator, batch by batch": lambda: {"batch_size": 1, "batch_sampler": trainer_feeds.Curriculum()},
    "global generator": lambda: {"sampler": trainer_feeds.OneByOne()},
}


@pytest.mark.parametrize("workers", [(2, 1), (2, 0), (0, 2)], ids=str)
@pytest.mark.parametrize("name", OTHER_WORKERS)
def test_the_order_goes_on_with_another_number_of_workers(
    name: str, workers: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_with(counts: Iterator[int], lines: list[str], stop: Callable[[int], None]) -> None:
        with Run.open(seed=3, precision="fp32") as run:
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            loader = trainer_feeds.plain(num_workers=next(counts), **OTHER_WORKERS[name]())
            run.track(model=model, optimizer=optimizer, loader=loader)
            for x in run.batches(TOTAL):
                run.step(model(x).square().mean())
                lines.append(f"{run.last_loss.hex()} {x[:, 0].tolist()}")
                stop(run.steps_done)

    whole: list[str] = []
    train_with(iter(workers[:1]), whole, lambda _: None)
    counts = iter(workers)
    assert interruptions(tmp_path, monkeypatch, lambda lines, stop: train_with(counts, lines, stop), (6,)) == whole


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("before", "after", "read"), [(4, 2, 2), (2, 4, 4), (4, 5, 3)])
def test_a_loader_goes_on_with_another_batch_size(before: int, after: int, read: int, workers: int) -> None:
    def make(size: int) -> Any:
        return as_feed(trainer_feeds.plain(batch_size=size, shuffle=True, num_workers=workers))

    def samples(batches: Iterator[Any]) -> list[int]:
        return [int(x) for batch in batches for x in batch[:, 0]]

    feed, resumed = make(before), make(after)
    batches = feed.open_epoch()
    first = samples(itertools.islice(batches, read))
    state = feed.state_dict()
    whole = first + samples(batches)
    resumed.load_state_dict(state)
    batches = resumed.open_epoch()
    second = samples(itertools.islice(batches, 1))
    again = make(before)
    again.load_state_dict(resumed.state_dict())
    assert first + second + samples(batches) == whole
    assert first + second + samples(again.open_epoch()) == whole
    assert sorted(whole) == list(range(LENGTH))


def test_a_position_in_other_batches_of_an_own_sampler_is_refused() -> None:
    class Sized(trainer_feeds.Curriculum):
        batch_size = 4

    feed = as_feed(trainer_feeds.plain(batch_size=1, batch_sampler=Sized()))
    next(feed.open_epoch())
    other = Sized()
    other.batch_size = 2
    with pytest.raises(ValueError, match=r"batches of 4 samples is none in batches of 2.*resumable_loader"):
        as_feed(trainer_feeds.plain(batch_size=1, batch_sampler=other)).load_state_dict(feed.state_dict())


@pytest.mark.parametrize("make", [trainer_feeds.plain, lambda **options: resumable_loader(Plain(), 4, **options)])
def test_batches_are_counted_in_order(make: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    feed = as_feed(make(num_workers=2, in_order=False, shuffle=False))
    assert [int(x) for batch in feed.open_epoch() for x in batch[:, 0]] == list(range(LENGTH))
    assert "in_order=False is ignored" in caplog.text


class Rising(Sampler[list[int]]):
    """Batches from a pool that the loop makes larger."""

    def __init__(self) -> None:
        self.pool, self.epochs = 6, 0

    def __iter__(self) -> Iterator[list[int]]:
        self.epochs += 1
        for _ in range(5):
            yield [(self.epochs + random.randrange(self.pool)) % LENGTH for _ in range(4)]

    def state_dict(self) -> dict[str, int]:
        return {"pool": self.pool, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.pool, self.epochs = state["pool"], state["epochs"]


class Weighted(Rising):
    """Has a weight for each of many samples, too."""

    reads = 0

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.zeros(20_000)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            yield [(index + int(self.weights[0])) % LENGTH for index in batch]

    def state_dict(self) -> dict[str, Any]:
        self.reads += 1
        return super().state_dict() | {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.weights = state["weights"]


def test_a_large_state_of_a_sampler_is_not_copied_for_each_batch() -> None:
    sampler = Weighted()
    feed = as_feed(trainer_feeds.plain(batch_size=1, batch_sampler=sampler))
    for _ in feed.open_epoch():
        sampler.weights += 1
        state = feed.state_dict()
    assert len(pickle.dumps(state)) < 3 * sampler.weights.nbytes
    reads = sampler.reads
    list(feed.open_epoch())
    assert sampler.reads - reads < 5  # batches of an epoch


@pytest.mark.parametrize("stop", [2, 4])
def test_changes_of_a_large_state_that_an_earlier_version_kept_are_repeated(
    stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(feed: Any, sampler: Weighted, lines: list[list[int]], until: int) -> None:
        for batch in feed.open_epoch():
            lines.append(batch[:, 0].tolist())
            sampler.weights = sampler.weights + len(lines) % 3
            if len(lines) == until:
                return

    def make() -> tuple[Any, Weighted]:
        sampler = Weighted()
        return as_feed(trainer_feeds.plain(batch_size=1, batch_sampler=sampler, num_workers=1)), sampler

    random.seed(1)
    torch.manual_seed(1)
    whole: list[list[int]] = []
    read(*make(), whole, 5)
    random.seed(1)
    torch.manual_seed(1)
    monkeypatch.setattr(sampled, "_LARGEST_REPEATED", 1 << 30)  # as in the earlier version
    lines: list[list[int]] = []
    feed, sampler = make()
    read(feed, sampler, lines, stop)
    state = copy.deepcopy(feed.state_dict())
    assert state["samplers"]["changes"]
    monkeypatch.undo()
    for until in (stop + 1, 5):
        feed, sampler = make()
        feed.load_state_dict(state)
        read(feed, sampler, lines, until)
        state = copy.deepcopy(feed.state_dict())
    assert lines == whole


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Rising, Weighted])
def test_a_curriculum_that_the_loop_drives_goes_on(
    kind: type[Rising],
    workers: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run_once(lines: list[str], stop: Callable[[int], None]) -> None:
        sampler = kind()
        with Run.open(seed=3, precision="fp32") as run:
            model = run.prepare(Net())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            loader = trainer_feeds.plain(batch_size=1, batch_sampler=sampler, num_workers=workers)
            run.track(model=model, optimizer=optimizer, loader=loader)
            for x in run.batches(TOTAL):
                run.step(model(x).sum() + x.sum() / 100)
                lines.append(f"{run.last_loss.hex()} {x[:, 0].tolist()}")
                if run.steps_done in (1, 3, 4, 8):
                    sampler.pool += 3
                if isinstance(sampler, Weighted):
                    sampler.weights += run.steps_done
                stop(run.steps_done)

    whole: list[str] = []
    run_once(whole, lambda _: None)
    assert interruptions(tmp_path, monkeypatch, run_once) == whole
    assert "another order" not in caplog.text
    assert ("the loop changes the state of the Weighted" in caplog.text) == (kind is Weighted and not workers)


class Moody(trainer_feeds.Eager):
    """Its order depends on what nobody keeps."""

    mood = 0

    def __iter__(self) -> Iterator[int]:
        return iter([(index + self.mood) % LENGTH for index in range(LENGTH)])


def test_a_sampler_that_gives_another_order_is_named(caplog: pytest.LogCaptureFixture) -> None:
    feed = as_feed(trainer_feeds.plain(sampler=Moody()))
    next(feed.open_epoch())
    state, resumed = feed.state_dict(), as_feed(trainer_feeds.plain(sampler=Moody()))
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    Moody.mood = 1
    next(resumed.open_epoch())
    [record] = caplog.records
    assert "Moody gives another order" in record.getMessage()
    assert "everspot rehearse" in record.getMessage()


def test_a_loader_that_reads_past_its_sampler_is_refused() -> None:
    class Wrapping(DataLoader[torch.Tensor]):
        def __iter__(self) -> Any:
            return iter([torch.zeros(4, 2)])

    with pytest.raises(TypeError, match="Wrapping does not read by its own sampler"):
        orders(Wrapping(Plain()), 1)


def test_a_position_that_torchdata_itself_wrote_is_still_read() -> None:
    def make() -> Any:
        return trainer_feeds.stateful(shuffle=True, generator=trainer_feeds.generator())

    loader = make()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    remaining_batches = [batch.tolist() for batch in batches]
    feed = as_feed(make())
    feed.load_state_dict(state)
    assert [batch.tolist() for batch in feed.open_epoch()] == remaining_batches


def test_a_feed_with_a_state_of_its_own_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    as_feed(trainer_feeds.OwnFeed())
    assert "OwnFeed" in caplog.text
    assert "everspot rehearse" in caplog.text
    caplog.clear()
    for make in (*trainer_feeds.SAMPLED.values(), *trainer_feeds.IN_WORKERS.values()):
        as_feed(make())
    assert not caplog.records


class Forgetful(trainer_feeds.OwnFeed):
    """Keeps its epoch, and not where in the epoch it is."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(1))

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": 0}


def test_a_state_that_does_not_hold_the_position_is_noticed_at_the_second_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for make in trainer_feeds.STATEFUL.values():
        batches = as_feed(make()).open_epoch()
        next(batches), next(batches)
    assert "stays the same" not in caplog.text
    batches = as_feed(Forgetful()).open_epoch()
    next(batches), next(batches)
    assert "state_dict() of the Forgetful stays the same" in caplog.text


def test_a_generator_that_cannot_go_on_is_named_at_the_resume(caplog: pytest.LogCaptureFixture) -> None:
    first, second = LoopRandomness(), LoopRandomness()
    first.watch({"noise": np.random.default_rng(1), "loader.rng": random.Random(1), "g": np.random.default_rng(1)})
    second.watch(
        {"mixup.rng": random.Random(1), "loader.rng": torch.Generator(), "g": np.random.Generator(np.random.Philox(1))}
    )
    second.load_state_dict(first.state_dict())
    second.apply_pending()
    assert "mixup.rng is not in the checkpoint" in caplog.text
    assert "noise does not exist now" in caplog.text
    assert "loader.rng was another one" in caplog.text
    assert "random generator g was another one" in caplog.text


class Hostile:
    """Does not want to be looked at."""

    __slots__ = ("__dict__",)

    def __getattribute__(self, name: str) -> Any:
        raise OSError("no connection")


def test_objects_that_raise_when_looked_at_do_not_end_the_search() -> None:
    rng = random.Random(1)
    reference = weakref.proxy(Plain())  # of an object that is gone
    assert find_generators({"a": Hostile(), "b": [reference, Hostile()], "c": {"rng": rng}}) == {"c['rng']": rng}
