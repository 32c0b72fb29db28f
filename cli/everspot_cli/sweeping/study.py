"""Optuna's part of a sweep: it chooses the values to try next, and the trials to end early."""

import warnings
import zlib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from everspot_core.experiments.sweep import Dimension, Direction, Pruning, SweepSpec
from everspot_store.studies import Journal

from everspot_cli.errors import need

PRUNED = "everspot:pruned"
"""The mark of a trial that is being ended early: its job is being cancelled."""
RUNG, ROOT = "everspot:rung", "everspot:root"
"""Attributes of a promoted trial: its rung, and the number that it had in the first one."""
LENGTH = "everspot:steps"
"""The attribute of a study with the number of steps of a trial, as the first trial reported it. Hyperband divides
trials into brackets by it, so it never changes: with another length a trial would change its bracket."""
_ASHA_FACTOR, _HYPERBAND_FACTOR = 4, 3
"""The ratio of the steps of a rung to those of the rung before it: Optuna's defaults."""


def open_study(spec: SweepSpec, journal: Journal, *, create: bool) -> Any:
    """Return the study of a sweep, an `optuna.Study`.

    Args:
        spec: The sweep.
        journal: The operations on its study so far.
        create: Whether to create a study that does not exist yet, which writes; else the study is None.

    Raises:
        CliError: if Optuna is not installed.
    """
    need("everspot sweep", "sweep")
    optuna = _optuna()
    storage = optuna.storages.JournalStorage(journal)
    if create:
        study = optuna.create_study(
            storage=storage,
            study_name=spec.name,
            load_if_exists=True,
            direction="maximize" if spec.direction is Direction.MAXIMIZE else "minimize",
        )
    else:
        try:
            study = optuna.load_study(storage=storage, study_name=spec.name)
        except KeyError:  # its first command was ended before it created the study
            return None
    study.pruner = _pruner(optuna, spec, study.user_attrs.get(LENGTH))
    return study


def choose_trial(study: Any, spec: SweepSpec) -> Any:
    """Return a running trial with a value for every field, which is not in the study yet: an `optuna.FrozenTrial`.

    The values are chosen on a copy in memory, so that a trial is one entry of the journal, with all its values.
    """
    optuna = _optuna()
    direction, number = study.direction, len(study.get_trials(deepcopy=False))
    copy = optuna.create_study(
        study_name=spec.name, direction=direction, sampler=_sampler(spec, number), pruner=study.pruner
    )
    copy.add_trials(study.get_trials(deepcopy=False))
    trial = copy.ask()
    for path, dimension in spec.fields.items():
        _suggest_value(trial, path, dimension)
    return _running_trial(copy.trials[-1], {})


def rung(trial: Any) -> int:
    """Return the rung of a trial: 0 for the first, and without a fidelity field."""
    return int(trial.user_attrs.get(RUNG, 0))


def root(trial: Any) -> int:
    """Return the number that a trial had in the first rung."""
    return int(trial.user_attrs.get(ROOT, trial.number))


def promote(trial: Any) -> Any:
    """Return a running trial with the values of another one, in the rung above it. It is not in the study yet."""
    return _running_trial(trial, {RUNG: rung(trial) + 1, ROOT: root(trial)})


def _running_trial(trial: Any, attributes: dict[str, int]) -> Any:
    optuna = _optuna().trial
    return optuna.create_trial(
        state=optuna.TrialState.RUNNING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs=attributes,
    )


def lasts(study: Any, spec: SweepSpec, steps: int | None) -> None:
    """Note the number of steps of a trial, which it has reported or shown by its end. Only the first note counts."""
    if not steps or spec.pruner is not Pruning.HYPERBAND or LENGTH in study.user_attrs:
        return
    study.set_user_attr(LENGTH, steps)
    study.pruner = _pruner(_optuna(), spec, study.user_attrs[LENGTH])


def pending_rungs(study: Any, spec: SweepSpec, trial: Any, step: int) -> list[int]:
    """Return the steps up to `step` at which the pruner compares trials, and for which the trial has reported no value
    yet. Hyperband has none until the length of a trial is known."""
    if spec.pruner is Pruning.NONE or (spec.pruner is Pruning.HYPERBAND and LENGTH not in study.user_attrs):
        return []
    factor = _ASHA_FACTOR if spec.pruner is Pruning.ASHA else _HYPERBAND_FACTOR
    reported, rungs, current = max(trial.intermediate_values, default=0), [], spec.min_steps
    while current <= step:
        if current > reported:
            rungs.append(current)
        current *= factor
    return rungs


def report(study: Any, trial: Any, points: Iterable[tuple[int, float]]) -> bool:
    """Report values of a trial by step, in order. Return whether to end the trial early."""
    handle = _optuna().trial.Trial(study, trial._trial_id)
    reported = max(trial.intermediate_values, default=0)
    for step, value in points:
        if PRUNED in trial.user_attrs:
            break
        if step <= reported:
            continue
        handle.report(value, step)
        # The pruner counts the newest value for every rung up to its step, so it is asked after each one.
        if handle.should_prune():
            handle.set_user_attr(PRUNED, step)
            return True
    return PRUNED in trial.user_attrs


def complete(study: Any, trial: Any, value: float, points: Iterable[tuple[int, float]]) -> None:
    """Note that a trial has run to its end. `points`: values by step that are not reported yet. Running trials are
    compared with them too."""
    handle = _optuna().trial.Trial(study, trial._trial_id)
    for step, each in points:
        if step > max(trial.intermediate_values, default=0):
            handle.report(each, step)
            handle.should_prune()  # called for its side effect: the pruner records the trial's steps and values
    _record(study, trial.number, value, "COMPLETE")


def fail(study: Any, trial: Any) -> None:
    """Note that a trial was ended early or has failed."""
    _record(study, trial.number, None, "PRUNED" if PRUNED in trial.user_attrs else "FAIL")


def _record(study: Any, number: int, value: float | None, state: str) -> None:
    study.tell(number, value, state=_optuna().trial.TrialState[state], skip_if_finished=True)


def _pruner(optuna: Any, spec: SweepSpec, length: int | None) -> Any:
    """Return the pruner, which ends trials early. Hyperband needs the length of a trial; until it is known, no trial is
    ended."""
    if spec.pruner is Pruning.ASHA:
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=spec.min_steps, reduction_factor=_ASHA_FACTOR)
    if spec.pruner is Pruning.HYPERBAND and length is not None:
        return optuna.pruners.HyperbandPruner(
            min_resource=spec.min_steps, max_resource=length, reduction_factor=_HYPERBAND_FACTOR
        )
    return optuna.pruners.NopPruner()


def _sampler(spec: SweepSpec, number: int) -> Any:
    """Return the sampler of one trial. Its random state depends on the sweep's seed and the trial's number alone, so
    that a command that continues a sweep does not repeat the values of earlier trials."""
    seed = None if spec.seed is None else zlib.crc32(f"{spec.seed}-{number}".encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `constant_liar`, which counts running trials, is experimental in Optuna
        return _optuna().samplers.TPESampler(seed=seed, constant_liar=True)


def _suggest_value(trial: Any, path: str, dimension: Dimension) -> None:
    low, high = dimension.low, dimension.high
    if dimension.choices is not None:
        trial.suggest_categorical(path, dimension.choices)
    elif dimension.whole:
        trial.suggest_int(path, low, high, log=dimension.log, step=dimension.step or 1)
    else:
        trial.suggest_float(path, low, high, log=dimension.log, step=dimension.step)


def _optuna() -> Any:
    """Import Optuna, only when a sweep is run, because few users need it."""
    optuna = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
