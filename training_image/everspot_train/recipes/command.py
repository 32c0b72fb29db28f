"""Runs a recipe as a program: reads its parameters from the job and the command line, and reports errors."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from everspot_train.recipes.images import BadDataset
from everspot_train.recipes.parameters import BadParameters, ParametersT, read_parameters
from everspot_train.rundir import RunContext, RunDir, Status, TrainingPhase
from everspot_train.trainer import TrainerError

log = logging.getLogger("everspot.recipe")


def run_recipe(
    kind: type[ParametersT], train: Callable[[ParametersT], float], arguments: Sequence[str] | None = None
) -> int:
    """Train with the parameters of the job and of the arguments, by default the command line's. Return the exit code:
    0, 2 for bad parameters or data, or 1 if the run failed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        train(read_parameters(kind, parameters_of_job() | parse_arguments(words)))
    except BadParameters as error:
        log.error("%s", error)
        if rundir := RunDir.from_environment():  # the run was not opened, so the agent does not know the error yet
            rundir.write(Status(phase=TrainingPhase.FAILED, message=str(error)))
        return 2
    except BadDataset as error:
        log.error("%s", error)
        return 2
    except TrainerError as error:
        log.error("%s", error)
        return 1
    return 0


def parse_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` words as parameters. A value is parsed as JSON; other values are text.

    Raises:
        BadParameters: if a word has no `=`.
    """
    parameters: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise BadParameters(f"{argument!r} is not name=value")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def parameters_of_job() -> dict[str, Any]:
    """Return the parameters of this process's job; empty without an agent."""
    rundir = RunDir.from_environment()
    context = rundir.read(RunContext) if rundir else None
    return dict(context.submission.spec.parameters) if context else {}
