"""Checkpoints that look like those of a framework, but are not, or have more or fewer files than these."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from everspot_train.agent.artifacts.assess import ProgramEnd
from folder_helpers import Place, restore_tree, write

TRAINER = ("model-weights", "optimizer.state", "training_args.bin", "trainer_state.json")
RANK_0, RANK_1 = (tuple(f"__{rank}{ending}" for ending in ("_0.distcp", ".metadata")) for rank in (0, 1))
LOOP = ("pytorch_model.bin", "optimizer.bin", "scheduler.bin")


@pytest.mark.parametrize(
    ("folder", "rounds", "last", "restored"),
    [
        pytest.param("checkpoint", [(*TRAINER[:3], "is_best.json", TRAINER[3])], TRAINER, 40, id="a file of the best"),
        pytest.param("step", [LOOP], LOOP, 40, id="an optimizer.bin that is not of accelerate"),
        pytest.param("step", [RANK_0 + RANK_1], RANK_0, 20, id="one of two ranks with metadata of their own"),
        pytest.param("step", [RANK_0 + RANK_1], (*RANK_0, RANK_1[0]), 20, id="a rank that has begun"),
    ],
)
def test_the_newest_checkpoint_that_is_complete_is_kept(
    tmp_path: Path, folder: str, rounds: list[Sequence[str]], last: Sequence[str], restored: int
) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1)
    keeper.restore()
    place.look(keeper)
    for step, names in zip((20, 40), [*rounds, last], strict=True):
        for name in names:
            write(keeper, f"{folder}-{step}/{name}", str(step))
        place.look(keeper, 70)
    keeper.keep_last(ProgramEnd.KILLED)
    names = rounds[0] if restored == 20 else last
    expected = {f"{folder}-{restored}/{name}": str(restored) for name in names}
    contents = restore_tree(place, 2)
    assert {name: text for name, text in contents.items() if name.startswith(f"{folder}-{restored}/")} == expected
    assert restored == 40 or not any(name.startswith(f"{folder}-40/") for name in contents)


def test_ckpt_files_that_are_parts_of_one_checkpoint_are_kept_together(tmp_path: Path) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1)
    keeper.restore()
    place.look(keeper)
    for step in (1, 2, 3):
        for name in ("model.ckpt", "optimizer.ckpt"):
            write(keeper, f"CKPT/{name}", str(step))
            place.look(keeper, 10)
        place.look(keeper, 90)
    write(keeper, "CKPT/model.ckpt", "4")
    place.look(keeper, 70)
    keeper.keep_last(ProgramEnd.KILLED)
    assert restore_tree(place, 2) == {"CKPT/model.ckpt": "3", "CKPT/optimizer.ckpt": "3"}
