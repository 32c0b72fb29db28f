"""GPUs by family of EC2 types (EC2 instance types guide)."""

from everspot_core.capacity.gpus import Families

FAMILIES = Families(
    models={
        "p2": "K80", "g3": "M60", "g3s": "M60", "p3": "V100", "p3dn": "V100-32GB", "g4dn": "T4", "g5g": "T4G",
        "p4d": "A100", "p4de": "A100-80GB", "g5": "A10G", "g6": "L4", "gr6": "L4", "g6e": "L40S",
        "p5": "H100", "p5e": "H200", "p5en": "H200", "g6f": "L4", "gr6f": "L4", "g7": "RTX PRO 4500",
        "g7e": "RTX PRO 6000",
        "p6-b200": "B200", "p6-b300": "B300",
    },
    without_cuda={
        "g4ad": "AMD Radeon Pro V520", "trn1": "Trainium", "trn1n": "Trainium", "trn2": "Trainium",
        "inf1": "Inferentia", "inf2": "Inferentia", "dl1": "Gaudi", "dl2q": "Qualcomm AI 100", "vt1": "Xilinx U30",
    },
)  # fmt: skip
