"""State in YAML, TOML, INI and CFG files is kept with the weights beside it; a configuration waits for nothing."""

from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.records import EventKind
from everspot_train.agent.artifacts.assess import REST, ProgramEnd
from folder_helpers import Place, restore_tree, write

ORDERS = [
    ("trainer.toml", False),
    ("state.yaml", True),
    ("run/progress.YML", False),
    ("state.ini", False),
    ("a.json", True),
]


@pytest.mark.parametrize(("name", "first"), ORDERS)
def test_settings_that_each_round_rewrites_are_kept_with_their_weights(tmp_path: Path, name: str, first: bool) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    write(keeper, "config.yaml", "0")
    epoch = 1
    for step in range(1, 6):
        for file in (name, "weights.bin") if first else ("weights.bin", name):
            write(keeper, file, str(step))
            for _ in range(4):
                place.look(keeper, 2)
                epoch += 1
                if place.checkpoint_events:
                    restored = restore_tree(place, epoch, fence=False)
                    assert restored[name] == restored["weights.bin"], (step, file, restored)
        place.look(keeper, 25 if step == 1 else 6)
    assert len(place.checkpoint_events) >= 4 and restore_tree(place, epoch + 1, fence=False)["config.yaml"] == "0"
    write(keeper, name if first else "weights.bin", "6")
    keeper.keep_last(ProgramEnd.KILLED)
    second = place.next_machine(100)
    write(second, name if first else "weights.bin", "6")
    place.look(second, 40)
    restored = restore_tree(place, 101)
    assert restored[name] == restored["weights.bin"] == "5", "what was learnt is not lost"


def test_a_kill_in_the_second_round_keeps_the_settings_of_the_first_with_its_weights(tmp_path: Path) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for file in ("weights.bin", "trainer.toml"):
        write(keeper, file, "1")
    place.look(keeper, 30)
    write(keeper, "weights.bin", "2")
    place.look(keeper, 3)
    keeper.keep_last(ProgramEnd.KILLED)
    assert restore_tree(place, 2) == {"weights.bin": "1", "trainer.toml": "1"}


def test_settings_that_are_numbered_are_kept_with_their_weights(tmp_path: Path) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for step in (20, 40, 60):
        write(keeper, f"weights_{step}.bin", str(step))
        place.look(keeper, 8)
        write(keeper, f"state_{step}.toml", str(step))
        place.look(keeper, 25)
    write(keeper, "weights_80.bin", "80")
    place.look(keeper, 30)
    names = set(restore_tree(place, 2))
    assert {"weights_60.bin", "state_60.toml"} <= names and "weights_80.bin" not in names


@pytest.mark.parametrize("config_first", [True, False])
def test_a_configuration_neither_blocks_rounds_nor_is_a_checkpoint(tmp_path: Path, config_first: bool) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    if config_first:
        write(keeper, "config.yaml", "lr: 1")
        place.look(keeper, 40)
        write(keeper, "config.yaml", "lr: 2")  # a library adds its defaults
        place.look(keeper)
    for step in range(1, 5):
        for name in ("weights.bin", "optim.bin"):
            write(keeper, name, str(step))
            place.look(keeper, 3)
        if step == 1 and not config_first:
            write(keeper, "config.yaml", "lr: 2")
        before = len(place.checkpoint_events)
        place.look(keeper, int(REST.total_seconds()) + 3 if step < 3 else 4)
        restored = restore_tree(place, step + 1, fence=False)
        assert restored == {"config.yaml": "lr: 2", "weights.bin": str(step), "optim.bin": str(step)}, before
    assert not place.list_events(EventKind.SKIPPED)


def test_a_configuration_alone_is_no_checkpoint(tmp_path: Path) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    write(keeper, "config.yaml", "lr: 1")
    place.look(keeper, 40)
    keeper.keep_last(ProgramEnd.KILLED)
    assert place.checkpoint_events == []
