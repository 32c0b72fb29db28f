"""Checks whether CUDA works on this machine, by opening a context on each GPU.

`nvidia-smi` asks only the driver. It also lists the GPUs of a machine whose NVSwitch has not been set up, where every
CUDA program fails with error 802. The check runs in a child process, because a context holds hundreds of MiB of GPU
memory until its process ends. torch is not imported.
"""

import ctypes
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # as a program this file is run by itself, without the package
    from everspot_core.clock import Clock

CHECK_TIMEOUT = timedelta(seconds=90)
"""A broken GPU can block cuInit for ever. Eight sound GPUs without persistence mode take up to 20 s."""
SYSTEM_NOT_READY = 802
"""CUDA_ERROR_SYSTEM_NOT_READY: on machines with NVSwitch, until the fabric manager has set the switches up."""
OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY: a job that outlived a restart of the agent may have all of a GPU's memory."""
READY_ATTEMPTS, READY_WAIT = 13, timedelta(seconds=10)
"""The fabric manager starts before the agent, but registering the GPUs with the switches takes up to two minutes
more."""


@dataclass(frozen=True)
class CudaFault:
    """Why CUDA does not work here.

    Attributes:
        code: CUDA's error code; None if CUDA was not reached, or did not answer.
        message: The full reason, as a sentence.
    """

    code: int | None
    message: str


def check_cuda(gpus: int) -> CudaFault | None:
    """Open a CUDA context on each GPU. `gpus`: the number that `nvidia-smi` lists; if it is 0, nothing is checked."""
    if not gpus:
        return None
    command = [sys.executable, "-I", "-S", __file__, str(gpus)]
    try:
        answer = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=CHECK_TIMEOUT.total_seconds()
        )
    except subprocess.TimeoutExpired:
        return CudaFault(None, f"CUDA does not answer within {CHECK_TIMEOUT.total_seconds():.0f} s on the GPUs")
    if answer.returncode == 0:
        return None
    code, _, message = answer.stdout.strip().partition(" ")
    if not message:  # it crashed, for example because of a broken library
        return CudaFault(None, f"CUDA on the GPUs: the check ended with {answer.returncode}: {answer.stderr[-200:]}")
    return CudaFault(int(code) or None, message)


def await_cuda(gpus: int, clock: "Clock") -> CudaFault | None:
    """Check CUDA. While only the set-up of the NVSwitch is unfinished, repeat the check for about two minutes."""
    for attempts_left in range(READY_ATTEMPTS - 1, -1, -1):
        fault = check_cuda(gpus)
        if fault is None or fault.code != SYSTEM_NOT_READY or not attempts_left:
            return fault
        clock.sleep(READY_WAIT)
    raise AssertionError("unreachable: the last attempt returns")


def open_contexts(expected: int) -> tuple[int, str] | None:
    """Open and close a context on each GPU. Returns CUDA's error code (0 if CUDA was not reached) and a sentence."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, f"CUDA is not available on the GPUs: {error}"
    code = cuda.cuInit(0)
    if code:
        return code, _describe(cuda, code, "GPUs")
    count = ctypes.c_int()
    code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return code, _describe(cuda, code, "GPUs")
    if count.value < expected:
        return 0, f"CUDA sees {count.value} of the {expected} GPUs that the driver lists"
    for number in range(count.value):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        code = cuda.cuDeviceGet(ctypes.byref(device), number)
        code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if code and code != OUT_OF_MEMORY:
            return code, _describe(cuda, code, f"GPU {number}")
        if not code:
            cuda.cuDevicePrimaryCtxRelease_v2(device)
    return None


def _describe(cuda: ctypes.CDLL, code: int, place: str) -> str:
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(code, ctypes.byref(text))
    words = text.value.decode(errors="replace") if text.value else "unknown error"
    cause = "; the fabric manager has not set the NVSwitch up" if code == SYSTEM_NOT_READY else ""
    return f"CUDA error {code} on {place}: {words}{cause}"


if __name__ == "__main__":
    failure = open_contexts(int(sys.argv[1]))
    if failure is not None:
        sys.stdout.write(f"{failure[0]} {failure[1]}")
        sys.exit(1)
