"""The conclusions of a rehearsal from its records: pure functions over constructed records."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_train.rehearse import advice, compare
from everspot_train.rehearse.compare import UnstableEntries
from everspot_train.rehearse.files import Trees, differences_between, matters, read_structure
from everspot_train.rehearse.library import Played, RehearsedAttempt, plan_pauses
from everspot_train.rehearse.logs import first_log_difference, first_position, log_lines, unstable_numbers, usual_key
from everspot_train.rehearse.places import (
    AFTER_LOOP,
    EPOCH_END,
    EVALUATION,
    MIDDLE,
    SUDDEN,
    TWICE,
    PlannedInterruption,
    list_places,
)
from everspot_train.rehearse.records import Boundary, Record
from safetensors.torch import save_file

STEPS = 6


def boundary(step: int, **changes: Any) -> Boundary:
    """A boundary of a run in which everything follows from the step."""
    defaults: dict[str, Any] = {
        "batches": [f"batch {step}"] if step else [],
        "losses": [f"float32[]:0.{step}"] if step else [],
        "state": {
            "model/w": f"float32[2]:w{step}",
            "optimizer/w/exp_avg": f"float32[2]:m{step}",
            "optimizer/group 0/lr": f"0.{step}",
        },
        "random": {"torch": f"t{step}", "python": "p"},
        "variables": {
            "main.best": f"value|{9 - step}",
            "main.rng": f"generator|numpy.PCG64:{step}",
            "main.k": "value|1",
        },
        "first": step == 0,
    }
    return Boundary(step, **{**defaults, **changes})


def undisturbed() -> Played:
    return Played([RehearsedAttempt({0: Record(0, [boundary(step) for step in range(STEPS + 1)])})])


def interrupted(at: int = 3, **changes: dict[int, dict[str, Any]]) -> Played:
    """A run that stopped after `at` steps. `changes`: by attempt (`first`, `second`) and step."""
    first_attempt = [boundary(step, **changes.get("first", {}).get(step, {})) for step in range(at + 1)]
    start = boundary(at, first=True, batches=[], losses=[])
    remaining_boundaries = [start, *(boundary(step) for step in range(at + 1, STEPS + 1))]
    second_attempt = [replace(b, **changes.get("second", {}).get(b.step, {})) for b in remaining_boundaries]
    first, second = Record(0, first_attempt), Record(0, second_attempt)
    return Played([RehearsedAttempt({0: first}), RehearsedAttempt({0: second}, at)])


def find_difference(run: Played, unstable: UnstableEntries | None = None) -> compare.FirstDifference | None:
    return compare.first_difference(undisturbed(), run, unstable or UnstableEntries())


def other(step: int, **entries: str) -> dict[str, Any]:
    """The state of a step with other entries."""
    return {"state": boundary(step).state | {name.replace("__", "/"): text for name, text in entries.items()}}


def test_a_run_that_is_the_same_has_no_difference() -> None:
    assert find_difference(interrupted()) is None


@pytest.mark.parametrize(
    ("changes", "kind", "name", "step"),
    [
        ({4: {"batches": ["batch 1"], "losses": ["float32[]:0.9"]}}, "batch", "", 4),
        ({5: {"losses": ["float32[]:0.9"]}}, "loss", "", 5),
        ({3: other(3, model__w="float32[2]:x")}, "weight", "model/w", 3),
        ({3: other(3, optimizer__w__exp_avg="bfloat16[2]:m3")}, "optimizer", "optimizer/w/exp_avg", 3),
        ({6: {"state": {"model/w": "float32[2]:w6"}}}, "optimizer", "optimizer/group 0/lr", 6),
        ({4: {"metrics": {"accuracy": "0.5"}}}, "metric", "accuracy", 4),
    ],
)
def test_the_first_difference_is_the_earliest_cause(
    changes: dict[int, dict[str, Any]], kind: str, name: str, step: int
) -> None:
    difference = find_difference(interrupted(second=changes))
    assert difference is not None
    assert (difference.kind, difference.name, difference.step) == (kind, name, step)


def test_a_difference_before_the_interruption_counts_too() -> None:
    difference = find_difference(interrupted(first={2: {"losses": ["float32[]:0.9"]}}))
    assert difference is not None and (difference.kind, difference.step) == ("loss", 2)


def test_a_weight_counts_more_than_a_metric_that_differs_earlier() -> None:
    difference = find_difference(interrupted(second={4: {"metrics": {"m": "1"}}, 6: other(6, model__w="float32[2]:x")}))
    assert difference is not None and (difference.kind, difference.step) == ("weight", 6)


def test_a_run_that_begins_from_zero_or_ends_early_is_no_exact_run() -> None:
    again = undisturbed().attempts[0]
    zero = Played([interrupted().attempts[0], replace(again, expected_step=3)])
    difference = find_difference(zero)
    assert difference is not None and (difference.kind, difference.actual) == ("step", "from step 0")
    short = interrupted()
    short.attempts[1].records[0].boundaries.pop()
    difference = find_difference(short)
    assert difference is not None and (difference.kind, difference.actual) == ("step", "ends after step 5")


def test_what_differs_between_undisturbed_runs_is_not_blamed_on_the_resume() -> None:
    twin = undisturbed()
    twin.attempts[0].records[0].boundaries[2] = boundary(2, metrics={"seconds": "1.5"})
    unstable, difference = compare.unstable_between(undisturbed(), twin)
    assert difference is None, "a metric alone makes no script nondeterministic"
    assert unstable.names == ["metric seconds"]
    assert find_difference(interrupted(second={4: {"metrics": {"seconds": "2"}}}), unstable) is None
    twin.attempts[0].records[0].boundaries[3] = boundary(3, losses=["float32[]:0.8"])
    unstable, difference = compare.unstable_between(undisturbed(), twin)
    assert difference is not None and (difference.kind, difference.step) == ("loss", 3)
    assert find_difference(interrupted(second={5: {"losses": ["float32[]:0.9"]}}), unstable) is None


def test_a_metric_that_holds_a_time_is_no_difference_of_two_undisturbed_runs() -> None:
    def timed(seconds: str) -> Played:
        boundaries = [
            boundary(n, metrics={"ips": seconds}, **other(n, run__metrics__ips=seconds)) for n in range(STEPS + 1)
        ]
        return Played([RehearsedAttempt({0: Record(0, boundaries)})])

    unstable, difference = compare.unstable_between(timed("1.0"), timed("2.0"))
    assert difference is None
    assert unstable.names == ["metric ips", "metric run/metrics/ips"]


def advised(second: dict[int, dict[str, Any]], loader: dict[str, Any] | None = None) -> tuple[list[str], str]:
    difference = find_difference(interrupted(second=second))
    assert difference is not None
    variables = compare.unrestored(difference, UnstableEntries())
    moving = compare.changing(undisturbed(), 0)
    return advice.advise(difference, [v for v in variables if v[0] in moving], loader or {})


def lost(**variables: str) -> dict[str, Any]:
    return {"variables": boundary(3).variables | {name.replace("__", "."): text for name, text in variables.items()}}


def test_a_generator_that_was_not_restored_explains_a_loss() -> None:
    cause, fix = advised({3: lost(main__rng="generator|numpy.PCG64:0"), 4: {"losses": ["float32[]:0.9"]}})
    assert cause == ["main.rng"]
    assert "the random generator main.rng is not restored" in fix


def test_a_counter_that_was_not_restored_explains_a_learning_rate() -> None:
    second = {3: lost(main__best="value|9"), 4: other(4, **{"optimizer__group 0__lr": "0.01"})}
    cause, fix = advised(second)
    assert cause == ["main.best"]
    assert "main.best is not restored (6 became 9)" in fix


def test_a_variable_that_never_changes_explains_nothing() -> None:
    cause, _ = advised({3: lost(main__k="value|7"), 4: {"losses": ["float32[]:0.9"]}})
    assert cause == []


@pytest.mark.parametrize(
    ("second", "loader", "words"),
    [
        ({4: {"batches": ["x"]}}, {"type": "DataLoader", "workers": 2}, "2 worker processes"),
        ({4: {"batches": ["x"]}}, {"order": "BatchOrder"}, "the samples are the same"),
        ({4: {"batches": ["x"]}}, {"type": "DataLoader"}, "depend on more than the index"),
        ({4: {"batches": ["x"]}}, {"type": "MyFeed"}, "MyFeed does not return to the same samples"),
        ({3: other(3, optimizer__w__exp_avg="bfloat16[2]:m3")}, {}, "was float32 and is bfloat16"),
        ({3: other(3, buffer__count="int64[]:0")}, {}, "persistent=False"),
        ({3: other(3, frozen__parameters="w")}, {}, "which ones to freeze"),
        (
            {3: {"random": {"torch": "z", "python": "p"}}, 4: {"losses": ["float32[]:0.9"]}},
            {},
            "between the resume and",
        ),
        ({4: {"losses": ["float32[]:0.9"], "random": {"torch": "z", "python": "p"}}}, {}, "random numbers of torch"),
        ({4: {"losses": ["float32[]:0.9"]}}, {}, "something else"),
        ({4: {"metrics": {"mean": "1"}}}, {}, "the training stays exact"),
    ],
)
def test_each_difference_has_its_advice(second: dict[int, dict[str, Any]], loader: dict[str, Any], words: str) -> None:
    assert words in advised(second, loader)[1]


def test_lost_variables_are_those_that_change_in_training_and_differ_after_the_first_resumed_step() -> None:
    second = {4: {"variables": {"main.best": "value|8", "main.rng": "generator|numpy.PCG64:4", "main.k": "value|2"}}}
    names = [
        name for _, name, _, _ in compare.lost_variables(undisturbed(), interrupted(second=second), UnstableEntries())
    ]
    assert names == ["main.best"]


def interruptions(record: Record) -> dict[str, list[PlannedInterruption]]:
    return {place.name: place.interruptions for place in list_places(record)}


def test_the_places_follow_from_what_the_undisturbed_run_did() -> None:
    steps = [boundary(step, evaluated=step in (5, 10)) for step in range(13)]
    places = interruptions(Record(0, steps, [8], 8))
    assert places[MIDDLE] == [PlannedInterruption(4)]
    assert places[EPOCH_END] == [PlannedInterruption(8)]
    assert places[EVALUATION] == [PlannedInterruption(5)]
    assert places[SUDDEN] == [PlannedInterruption(5, notice=False, checkpoint_at=3)]
    assert [i.step for i in places[TWICE]] == [6, 7]
    assert places[AFTER_LOOP] == [PlannedInterruption(None, notice=False)]


@pytest.mark.parametrize("steps", range(1, 9))
def test_no_place_lies_outside_of_the_run(steps: int) -> None:
    for planned in interruptions(Record(0, [boundary(step) for step in range(steps + 1)])).values():
        steps_used = [i.step for i in planned if i.step is not None]
        assert all(1 <= step < steps for step in steps_used) and steps_used == sorted(set(steps_used))
        assert all(len(plan_pauses(i)) == (2 if i.checkpoint_at else 1) for i in planned)


def test_an_epoch_that_is_too_long_is_named_with_the_option_that_reaches_its_end() -> None:
    place = next(p for p in list_places(Record(0, [boundary(s) for s in range(13)], [], 938)) if p.name == EPOCH_END)
    assert not place.interruptions
    assert place.missing == "an epoch has 938 steps: --steps 941 reaches its end"


LOG = """EVERSPOT step=1 loss=0.5 12.1s
step=2 loss=0.4 13.0s\rEpoch: [1] [ 3/9] l=7
{'loss': '2.5', 'epoch': '0.5'}
hello 3
"""


def test_lines_of_a_log_that_name_a_step_are_compared_by_their_numbers() -> None:
    lines = log_lines(LOG)
    assert [(line.key, line.position) for line in lines] == [
        ("step", (1,)),
        ("step", (2,)),
        ("epoch", (1,)),
        ("epoch", (0.5,)),
    ]
    other = log_lines(LOG.replace("0.4", "0.3"))
    difference = first_log_difference(lines, other, set())
    assert difference is not None and difference[1:] == ("0.4", "0.3")
    assert first_log_difference(lines, other, unstable_numbers(lines, other)) is None
    assert first_log_difference(lines, log_lines("step=3 loss=9\n"), set()) is None


def test_the_first_position_shows_whether_a_program_went_on() -> None:
    lines = log_lines("epoch 0 step 1 loss 3.0\nepoch 0 step 2 loss 2.0\nepoch 1 step 1 loss 1.0\n")
    key = usual_key(lines)
    assert key == "epoch, step"
    assert first_position(lines, key) == (0, 1)


def test_a_record_of_two_loops_joins_the_boundary_at_which_one_ends_and_the_next_begins(tmp_path: Path) -> None:
    from everspot_train.rehearse.records import read_records

    path = tmp_path / "record"
    lines = [
        '{"event": "plan", "step": 4, "rank": 0, "per_epoch": 2, "loader": {}}',
        '{"event": "boundary", "step": 2, "rank": 0, "first": false, "losses": ["a"], "metrics": {}}',
        '{"event": "boundary", "step": 2, "rank": 0, "first": false, "losses": [], "metrics": {"val": "1"}}',
        '{"event": "epoch", "step": 2, "rank": 0}',
        '{"event": "end", "step": 4, "rank": 0}',
        '{"event": "bound',
    ]
    path.write_text("\n".join(lines))
    record = read_records(path)[0]
    assert [(b.step, b.end) for b in record.boundaries] == [(2, False), (4, True)]
    assert (record.boundaries[0].losses, record.boundaries[0].metrics) == (["a"], {"val": "1"})
    assert (record.epoch_ends, record.per_epoch) == ([2], 2)


def write_leftovers(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_files_are_compared_by_their_entries_without_what_two_undisturbed_runs_differ_in(tmp_path: Path) -> None:
    first = write_leftovers(tmp_path / "a", model__json='{"w": 1, "t": 5}', log__txt="x")
    trees = Trees(first, write_leftovers(tmp_path / "b", model__json='{"w": 1, "t": 6}', log__txt="x"))
    assert trees.unstable == {"model.json": {"t"}} and trees.comparable()
    assert trees.differences(write_leftovers(tmp_path / "c", model__json='{"w": 1, "t": 9}', log__txt="x")) == []
    differences = trees.differences(write_leftovers(tmp_path / "d", model__json='{"w": 2, "t": 9}', log__txt="y"))
    assert [(path, entry.name, matters(path, entry)) for path, entry in differences] == [
        ("model.json", "w", True),
        ("log.txt", "", False),
    ]
    assert [path for path, _ in trees.differences(write_leftovers(tmp_path / "e", log__txt="x"))] == ["model.json"]


def test_files_that_always_differ_leave_nothing_to_compare(tmp_path: Path) -> None:
    trees = Trees(
        write_leftovers(tmp_path / "a", model__bin="1", log__txt="x"),
        write_leftovers(tmp_path / "b", model__bin="2", log__txt="x"),
    )
    assert not trees.comparable()


def test_torch_and_safetensors_files_are_read_without_their_code(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(2), "t": 1}, tmp_path / "a.pt")
    torch.save({"w": torch.ones(2), "t": 1}, tmp_path / "b.pt")
    assert [entry.name for entry in differences_between(tmp_path / "a.pt", tmp_path / "b.pt")] == ["w"]
    save_file({"w": torch.zeros(2), "v": torch.zeros(1)}, tmp_path / "a.safetensors")
    save_file({"w": torch.zeros(2), "v": torch.ones(1)}, tmp_path / "b.safetensors")
    assert [e.name for e in differences_between(tmp_path / "a.safetensors", tmp_path / "b.safetensors")] == ["v"]
    torch.save(Path, tmp_path / "code.pt")
    assert read_structure(tmp_path / "code.pt") is None
