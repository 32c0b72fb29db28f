"""`everspot.job`, the decorator, and the handle of a job that it has submitted."""

import functools
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from everspot_cli.errors import CliError, Exit
from everspot_cli.functions.run_function import RESULT, SCRIPT, to_plain
from everspot_cli.functions.source import FUNCTION_MARK, JOB_MARK, describe_nested, record_source

if TYPE_CHECKING:  # an instance imports decorated functions, and has nothing of the command
    from everspot_cli.client import Client, JobStatus

_OWN_FIELDS = ("entrypoint", "recipe", "parameters")
_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values",
}
LONGEST_DEFAULT = 200
"""Characters of a text that goes along as an argument though it is a default."""
P = ParamSpec("P")
R = TypeVar("R")


class JobHandle:
    """A submitted job of a function. After the notebook was restarted, `JobHandle(job_id)` is the same job's.

    Args:
        job_id: The job.
        client: Its cluster's. Without it the cluster is the one that the command `everspot` takes.
    """

    def __init__(self, job_id: str, client: "Client | None" = None) -> None:
        self.job_id = job_id
        self._client = client or _default_client()

    def __repr__(self) -> str:
        return f"JobHandle({self.job_id!r})"

    def status(self) -> "JobStatus":
        """Return its state now."""
        return self._client.status(self.job_id)

    def wait(self, timeout: timedelta | None = None) -> "JobStatus":
        """Wait until it has ended, and return its last state. Raises `TimeoutError`."""
        return self._client.wait(self.job_id, timeout)

    def result(self, timeout: timedelta | None = None) -> Any:
        """Wait until it has ended, and return what the function returned.

        Raises:
            CliError: if it failed or was cancelled, or JSON does not carry the result.
            TimeoutError: if it has not ended by then.
        """
        status = self.wait(timeout)
        if not status.succeeded:
            words = f"{self.job_id} ended as {status.state.value}: {status.detail}".rstrip(": ")
            raise CliError(words, Exit.JOB_FAILED, hint="`.logs()` yields what it printed")
        with tempfile.TemporaryDirectory(prefix="everspot-result-") as folder:
            (path,) = self._client.outputs(self.job_id, RESULT, to=folder)
            document = json.loads(path.read_bytes())
        if "refused" in document:
            raise CliError(f"{self.job_id} has no result: {document['refused']}", hint="save it to the folder outputs/")
        return document["result"]

    def logs(self, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that it has printed, as `Client.logs` does."""
        return self._client.logs(self.job_id, follow=follow, tail=tail)

    def metrics(self) -> dict[str, list[tuple[int, float]]]:
        """Return the course of each metric: steps and values."""
        return self._client.metrics(self.job_id)

    def outputs(self, path: str = "", *, to: str | Path = ".") -> list[Path]:
        """Download the files of its folder `outputs/`, and return where they are."""
        return self._client.outputs(self.job_id, path, to=to)

    def cancel(self) -> None:
        """Ask for its end. Its checkpoints stay."""
        self._client.cancel(self.job_id)


class JobFunction(Generic[P, R]):
    """A function that can be submitted as a job. To call it runs it here."""

    def __init__(self, function: Callable[P, R], fields: dict[str, Any], client: "Client | None") -> None:
        functools.update_wrapper(self, function)
        setattr(self, FUNCTION_MARK, function)
        self._function = function
        self._fields = fields
        self._client = client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in this process."""
        return self._function(*args, **kwargs)

    def options(self, *, client: "Client | None" = None, **fields: Any) -> "JobFunction[P, R]":
        """Return the same function with other fields of the job, such as `tags={"trial": "3"}`."""
        return JobFunction(self._function, _check_fields({**self._fields, **fields}), client or self._client)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Submit the function with these arguments, and return the job. Once it returns, the job cannot be lost.

        Raises:
            CliError: if the function, an argument or a field of the job is wrong; it says which.
            TypeError: if the function does not take these arguments.
        """
        from everspot_cli.functions.packing import pack_function

        arguments = self._write_arguments(*args, **kwargs)
        client = self._client or _default_client()
        with tempfile.TemporaryDirectory(prefix="everspot-function-") as scratch:
            module, name, code = pack_function(self._function, self._fields.get("code"), Path(scratch, "code"))
            python = "{}.{}".format(*sys.version_info)
            job = {
                "name": _job_name(self._function),
                **self._fields,
                "entrypoint": [SCRIPT, module, name, arguments, python],
                "code": str(code),
            }
            return JobHandle(client.submit(job), client)

    def _write_arguments(self, *args: Any, **kwargs: Any) -> str:
        from everspot_core.counting import size
        from everspot_core.jobs.job_rules import LONGEST_WORD

        arguments: dict[str, Any] = {}
        signature = inspect.signature(self._function)
        call = signature.bind(*args, **kwargs)
        caller_names = set(call.arguments)
        call.apply_defaults()
        for name, value in call.arguments.items():
            if name not in caller_names and not _is_short(value):
                continue  # the job evaluates the default
            takes_more = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            arguments |= value if takes_more else {name: value}
        try:
            text = json.dumps({name: to_plain(a, f"the argument {name}", exact=True) for name, a in arguments.items()})
        except TypeError as error:
            raise CliError(f"{self._function.__name__}: {error}") from None
        if len(text) > LONGEST_WORD:
            words = f"the arguments are {size(len(text))} as JSON, and {size(LONGEST_WORD)} go along"
            hint = "`everspot data put` uploads them as a dataset; or write them to a file of `code`"
            raise CliError(f"{self._function.__name__}: {words}", hint=hint)
        return text


class JobDecorator:
    """What `everspot.job(…)` returns: it takes the function."""

    def __init__(self, fields: dict[str, Any], client: "Client | None") -> None:
        setattr(self, JOB_MARK, True)
        self._fields = fields
        self._client = client

    def __call__(self, function: Callable[P, R]) -> JobFunction[P, R]:
        """Return the function as one that can be submitted.

        Raises:
            CliError: if no job can run it.
        """
        _check_function(function)
        return JobFunction(function, self._fields, self._client)


@overload
def job(function: Callable[P, R]) -> JobFunction[P, R]: ...
@overload
def job(*, client: "Client | None" = None, **fields: Any) -> JobDecorator: ...
def job(
    function: Callable[P, R] | None = None, *, client: "Client | None" = None, **fields: Any
) -> JobFunction[P, R] | JobDecorator:
    """Make a function one that can be submitted as a job.

        @everspot.job(resources={"gpus": 1}, deadline="6h")
        def train(lr: float) -> float:
            ...

        loss = train.submit(lr=3e-4).result()

    Args:
        function: The function, where the decorator has no arguments.
        client: The cluster's. Without it the cluster is the one that the command `everspot` takes.
        fields: Those of the job file, but for `entrypoint`, `recipe` and `parameters`. `name` is the function's. `code`
            is needed where a function of a notebook uses modules of a folder.

    Raises:
        CliError: if a field does not exist, or no job can run the function.
    """
    decorator = JobDecorator(_check_fields(fields), client)
    return decorator if function is None else decorator(function)


setattr(job, JOB_MARK, True)


def _check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    from everspot_core.jobs.job import JobSpec
    from everspot_core.validation.problems import near

    wrong = [f"{name} is the function's own" for name in _OWN_FIELDS if name in fields]
    allowed = [name for name in JobSpec.model_fields if name not in _OWN_FIELDS]
    wrong += [
        f"{name} is no field of a job{near(name, allowed)}" for name in fields if name not in JobSpec.model_fields
    ]
    if wrong:
        raise CliError(f"everspot.job: {'; '.join(wrong)}", hint="docs/reference/job-file.md lists every field")
    return fields


def _check_function(function: Any) -> None:
    plain = inspect.unwrap(function)
    name = getattr(plain, "__qualname__", repr(function))
    if not isinstance(plain, FunctionType):
        raise CliError(f"everspot.job: {name} is no function that is written in Python")
    problem = describe_nested(plain)
    if inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        problem = "it is a generator or a coroutine: write a function that returns a value"
    for parameter in inspect.signature(plain).parameters.values():
        if parameter.kind in _KINDS:
            problem = problem or f"its parameter {parameter.name} {_KINDS[parameter.kind]}: give each value a name"
    if problem:
        raise CliError(f"everspot.job: {name}: {problem}")
    record_source(plain)


def _is_short(value: Any) -> bool:
    """Return whether a default goes along as an argument: it may come from a name that has another value by now."""
    return value is None or type(value) in (bool, int, float) or (type(value) is str and len(value) <= LONGEST_DEFAULT)


def _job_name(function: Callable[..., Any]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", function.__name__.lower()).strip("-") or "function"


def _default_client() -> "Client":
    from everspot_cli.client import Client

    return Client()
