"""Mixed precision by torch.amp: the number format, and the gradient scaler that belongs to it."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from everspot_core.jobs.job import Precision

from everspot_train.trainer.environment import cpu_has_bf16

# The format that autocast casts to; the others leave the numbers as the model has them.
_DTYPE = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
# How exactly matrices of fp32 are multiplied, and whether cuDNN's convolutions may use TF32, which they do unless told
# otherwise: fp32 would then be TF32 wherever there is a convolution. The 16-bit formats leave it to the program.
_EXACTNESS = {Precision.TF32: ("high", True), Precision.FP32: ("highest", False)}


def resolve(requested: Precision, device: torch.device) -> Precision:
    """Return the format that `auto` means here: bf16 where the hardware has it, else fp16 on a GPU, else fp32."""
    if requested is not Precision.AUTO:
        return requested
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return Precision.BF16 if native else Precision.FP16
    return Precision.BF16 if cpu_has_bf16() else Precision.FP32


def mixed(precision: Precision) -> bool:
    """Return whether autocast uses another format than the model's own."""
    return precision in _DTYPE


class MixedPrecision:
    """The resolved format on one device. `scaler` does nothing unless the format is fp16."""

    def __init__(self, requested: Precision, device: torch.device) -> None:
        self.precision = resolve(requested, device)
        self._device_type = device.type
        if self.precision in _EXACTNESS:
            matmul, convolution = _EXACTNESS[self.precision]
            torch.set_float32_matmul_precision(matmul)
            torch.backends.cudnn.allow_tf32 = convolution
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision is Precision.FP16)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context for forward pass and loss."""
        dtype = _DTYPE.get(self.precision)
        return torch.autocast(self._device_type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)

    def state_dict(self) -> dict[str, Any]:
        """Return the format and the scaler's state, which is empty unless the format is fp16."""
        return {"precision": self.precision.value, "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the scaler's state. A state of another format is ignored, and this run's scaler starts afresh."""
        if state["precision"] == self.precision.value:
            self.scaler.load_state_dict(state["scaler"])
