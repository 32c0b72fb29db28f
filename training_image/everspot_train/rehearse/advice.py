"""Writes one or two sentences on how to make a run exact, by the first difference and the variables that were not
restored."""

import re
from collections.abc import Sequence
from typing import Any

from everspot_train.rehearse.compare import FirstDifference, parse_shape

Variable = tuple[str, str, str]

_GENERATOR = (
    "the random generator {names} is not restored: derive its numbers from the step or the sample's index, draw from "
    "the global generators of python, numpy or torch, or track an object with its state (run.track(rng=…))"
)
_WEIGHTS = (
    "{names} is not tracked, so each resume resets it: pass a module by name, such as run.track(ema=…), and keep "
    "a tensor as a buffer of a tracked module"
)
_NUMBER = (
    "{names} is not restored ({values}): derive it from run.steps_done, or keep it in a tracked object with state_dict "
    "and load_state_dict"
)


def advise(difference: FirstDifference, variables: Sequence[Variable], loader: dict[str, Any]) -> tuple[list[str], str]:
    """Return the variables that explain a difference, and the sentence with the fix."""
    if difference.kind == "step":
        return [], _of_step(difference)
    if difference.first and difference.kind in ("weight", "optimizer", "state", "buffer", "frozen"):
        return _of_restored(difference, variables)
    chosen = _likely(variables)
    if difference.kind == "batch" and not (chosen and chosen[0][1].startswith("generator|")):
        return [], _of_batch(difference, loader)
    if difference.kind == "metric":
        names = [name for name, _, _ in chosen]
        if chosen and not difference.end:
            return names, f"the training stays exact, and the metric does not: {_of_variables(chosen)}"
        return (
            [],
            "the training stays exact; the metric depends on what one attempt has seen: compute it from the state",
        )
    if chosen:
        return [name for name, _, _ in chosen], _of_variables(chosen)
    return [], _of_hidden(difference)


def of_leftover(name: str, expected: str, actual: str) -> str:
    """Return the sentence for a variable that is not restored but has had no effect."""
    return _of_variables([(name, expected, actual)])


def of_undisturbed(difference: FirstDifference) -> str:
    """Return the sentence for a script whose undisturbed runs differ from each other."""
    if difference.kind == "step":
        return "two undisturbed runs make different numbers of steps: does the time or a random number end the loop?"
    if difference.first and difference.step == 0 and difference.kind == "weight":
        return "the first weights differ: seed the generators before the model is made, as Run.open(seed=…) does"
    if difference.kind == "batch":
        return (
            "two undisturbed runs get other batches: seed the loader and the augmentation, sort what comes from a set "
            "or from os.listdir, and use neither the time nor hash()"
        )
    return (
        "two undisturbed runs differ: look for an unseeded generator, the time, hash() or the order of a set; on a GPU "
        "call torch.use_deterministic_algorithms(True)"
    )


def readable(text: str) -> str:
    """Return the text of a value without its kind; for a tensor of one number only the number."""
    plain = text.partition("|")[2] or text
    return re.sub(r"^[a-z0-9]+\[\]:|^nan:(?=nan)", "", plain)


def _likely(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables that most likely explain a difference: generators, otherwise models, otherwise all."""
    for prefix in ("generator|", "weights|"):
        chosen = [variable for variable in variables if variable[1].startswith(prefix)]
        if chosen:
            return chosen[:3]
    return [variable for variable in variables if len(readable(variable[1])) < 80][:3]


def _of_variables(variables: Sequence[Variable]) -> str:
    names = ", ".join(name for name, _, _ in variables)
    if variables[0][1].startswith("generator|"):
        return _GENERATOR.format(names=names)
    if variables[0][1].startswith("weights|") or parse_shape(readable(variables[0][1])) not in ("", "[]"):
        return _WEIGHTS.format(names=names)
    values = ", ".join(f"{readable(expected)} became {readable(actual)}" for _, expected, actual in variables)
    return _NUMBER.format(names=names, values=values)


def _of_step(difference: FirstDifference) -> str:
    if difference.actual == "from step 0":
        return "the resumed run begins from zero: call run.track before run.batches, and do not leave the loop's `with`"
    return "the resumed run makes a different number of steps: pass run.batches the same total_steps in each attempt"


def _of_restored(difference: FirstDifference, variables: Sequence[Variable]) -> tuple[list[str], str]:
    dtypes = difference.expected.partition("[")[0], difference.actual.partition("[")[0]
    if difference.kind == "buffer":
        return [], (
            f"{difference.name.partition('/')[2]} is a buffer with persistent=False, so it is in no checkpoint: make "
            "it persistent, or compute it from the step"
        )
    if difference.kind == "frozen":
        return [], (
            "other parameters are frozen than before the interruption: after run.restore() and at each step, decide "
            "by run.steps_done which ones to freeze"
        )
    if dtypes[0] != dtypes[1] and "[" in difference.expected and "[" in difference.actual:
        return [], (
            f"it was {dtypes[0]} and is {dtypes[1]} after the resume: load_state_dict casts it; keep the state in the "
            "dtype of its parameter, or override load_state_dict of the optimizer"
        )
    if "missing" in (difference.expected, difference.actual):
        return [], "it is not in the restored state: create the same entries before run.restore() in every attempt"
    chosen = _likely(variables)
    piece = difference.name.partition("/")[0]
    return [name for name, _, _ in chosen], (
        f"the restored {piece} differs from the saved one: does its load_state_dict use everything that state_dict "
        "returns, and does nothing change the state between run.restore() and the first batch?"
    )


def _of_batch(difference: FirstDifference, loader: dict[str, Any]) -> str:
    if loader.get("order") != "BatchOrder" and loader.get("type") != "DataLoader":
        return (
            f"{loader.get('type', 'the loader')} does not return to the same samples: its state_dict, and its "
            "data set's, must hold position, order and random state, also right after load_state_dict; "
            "resumable_loader(dataset, batch_size, seed=…) does that"
        )
    if loader.get("workers"):
        return (
            f"the loader's {loader['workers']} worker processes draw other random numbers after a resume, or keep a "
            "state of their own: derive what a sample depends on from its index "
            "(numpy.random.default_rng([seed, index]))"
        )
    return (
        "the samples are the same, but their content differs: does the data set depend on more than the index, "
        "such as a cache or its own order?"
    )


def _of_hidden(difference: FirstDifference) -> str:
    before = difference.previous
    reference = difference.start_reference
    if (
        before is not None
        and before is difference.start
        and reference is not None
        and before.random != reference.random
    ):
        return "random numbers are drawn between the resume and the first step: draw them from a separate generator"
    if difference.boundary is not None and difference.reference is not None and not difference.end:
        other = [
            n for n, text in difference.boundary.random.items() if difference.reference.random.get(n, text) != text
        ]
        if other:
            return (
                f"from this step on the global random numbers of {', '.join(other)} are others: a loader without a "
                "generator of its own, or code that runs only after a resume, has drawn from them. A second loader "
                "that the loop reads by next() starts again with each resume: draw its samples by run.steps_done"
            )
    if difference.end:
        return "code after the loop depends on something that is not restored: compute it from the tracked state"
    return (
        "batch and state before this step are equal, so the step depends on something else: a variable in a library, "
        "the time, a file that an earlier attempt wrote, or a generator inside an extension"
    )
