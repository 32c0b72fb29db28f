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
from pathlib import Path
from types import TracebackType

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
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[0] = str(Path(arguments[0]).resolve().parent)
            runpy.run_path(arguments[0], run_name="__main__")
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
