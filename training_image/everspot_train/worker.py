"""Runs a program as python would, and writes the exception that ends it to a file: `python -m everspot_train.worker
[-m MODULE | SCRIPT] ARGUMENTS…`.

The exception goes to the file that TORCHELASTIC_ERROR_FILE names, in the form that torch's elastic agents read and
write (torch.distributed.elastic.multiprocessing.errors, ErrorHandler.record_exception); torch itself is not imported.
The output is what python would have printed.
"""

import atexit
import contextlib
import json
import os
import runpy
import sys
import time
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from everspot_train.masking import masked, own_secrets
from everspot_train.sound_end import SoundEnd

ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
_OWN = (__file__, runpy.__file__, "<frozen runpy>")


def main(arguments: list[str]) -> None:
    """Run the program. It ends with 1 after an exception, else as the program does."""
    own_secrets()  # before the program may take them out of its environment
    _separate_wandb_runs()
    end = SoundEnd()
    atexit.register(end.conclude)  # the first function that is registered is called last
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.modules["__main__"] = ModuleType("__main__")
            # What python calls for `-m`. run_module() would take `__main__` back at the end of the module's code, while
            # threads and functions of atexit still need it.
            runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        else:
            sys.argv = arguments
            sys.path[0] = str(Path(arguments[0]).resolve().parent)
            _run_script(arguments[0])
        end.reached = True
    except SystemExit as error:
        end.reached = not error.code
        if isinstance(error.code, str):
            record(error.code, error.code)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        trace = _without_own(error.__traceback__)
        text = "".join(traceback.format_exception(type(error), error, trace))
        record("".join(traceback.format_exception_only(type(error), error)).strip(), text)
        sys.excepthook(type(error), error, trace)
        sys.exit(1)


def _run_script(path: str) -> None:
    """Run a script as `__main__`, which stays what it is after the script's last line."""
    if not path.endswith(".py"):  # a folder or an archive
        runpy.run_path(path, run_name="__main__")
        return
    loader = SourceFileLoader("__main__", path)
    code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__.update(__file__=path, __loader__=loader, __package__=None, __cached__=None)
    exec(code, module.__dict__)  # noqa: S102 - the job's program


def _separate_wandb_runs() -> None:
    """Give every process but the first a run of its own in Weights & Biases, which goes on over all attempts.

    The agent sets one id for the job. Two processes with the same id would overwrite each other's history. An id that
    the job's own `env` sets differs from the name, and stays.
    """
    rank, run = os.environ.get("RANK", "0"), os.environ.get("WANDB_RUN_ID")
    if rank != "0" and run and run == os.environ.get("WANDB_NAME"):
        os.environ["WANDB_RUN_ID"] = os.environ["WANDB_NAME"] = f"{run}-rank{rank}"


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN:
        trace = trace.tb_next
    return trace


def record(message: str, callstack: str) -> None:
    """Write an exception where the agent looks for it, without the job's secrets. Nothing happens if no agent started
    this process."""
    path = os.environ.get(ERROR_FILE_VARIABLE)
    if path:
        extra = {"py_callstack": callstack, "timestamp": str(int(time.time()))}
        document = masked({"message": {"message": message, "extraInfo": extra}}, own_secrets())
        with contextlib.suppress(OSError):  # the disk may be what is full
            Path(path).write_text(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1:])
