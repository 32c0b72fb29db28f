"""Programs that begin with their own checkpoint. `FRAMEWORK`: the framework."""

import os
from pathlib import Path

import torch

torch.set_num_threads(1)


def transformers() -> None:
    from everspot_train.frameworks.transformers import train
    from trainer_net import TrainerNet
    from transformers import Trainer, TrainingArguments

    def trainer(output_dir: str, max_steps: int) -> Trainer:
        rows = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(64)]
        arguments = TrainingArguments(
            output_dir, max_steps=max_steps, save_steps=5, report_to=[], use_cpu=True, disable_tqdm=True
        )
        return Trainer(TrainerNet(), arguments, train_dataset=rows)

    trainer("earlier", 5).train()
    train(trainer("checkpoints", 10), resume_from_checkpoint=Path("earlier/checkpoint-5"))


def lightning() -> None:
    import lightning
    from everspot_train.frameworks.lightning import fit
    from lightning_net import LightningNet

    def trainer(max_steps: int) -> lightning.Trainer:
        return lightning.Trainer(max_steps=max_steps, logger=False, accelerator="cpu", enable_progress_bar=False)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=4)
    earlier = trainer(5)
    earlier.fit(LightningNet(), data)
    earlier.save_checkpoint("earlier.ckpt")
    fit(trainer(10), LightningNet(), data, ckpt_path="earlier.ckpt", weights_only=False)


globals()[os.environ["FRAMEWORK"]]()
