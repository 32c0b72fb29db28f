"""GPUs by family of machine types (Compute Engine documentation, "GPU machine types")."""

from everspot_core.capacity.gpus import Families

FAMILIES = Families(
    models={"g2": "L4", "a2": "A100", "a3": "H100", "a4": "B200", "a4x": "GB200", "g4": "RTX PRO 6000"},
    without_cuda={"ct4p": "TPU v4", "ct5lp": "TPU v5e", "ct5p": "TPU v5p", "ct6e": "TPU v6e"},
    separator="-",
)
