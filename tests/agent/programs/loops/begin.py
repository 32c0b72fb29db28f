"""Programs that begin with a checkpoint of their own: `HABITS` names the framework."""

import os
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)


def transformers() -> None:
    from everspot_train.frameworks.transformers import train
    from transformers import Trainer, TrainingArguments

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}

    def trainer(output_dir: str, max_steps: int) -> Trainer:
        rows = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(64)]
        arguments = TrainingArguments(
            output_dir, max_steps=max_steps, save_steps=5, report_to=[], use_cpu=True, disable_tqdm=True
        )
        return Trainer(Net(), arguments, train_dataset=rows)

    trainer("earlier", 5).train()
    train(trainer("checkpoints", 10), resume_from_checkpoint=Path("earlier/checkpoint-5"))


def lightning() -> None:
    import lightning
    from everspot_train.frameworks.lightning import fit

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    def trainer(max_steps: int) -> lightning.Trainer:
        return lightning.Trainer(max_steps=max_steps, logger=False, accelerator="cpu", enable_progress_bar=False)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=4)
    earlier = trainer(5)
    earlier.fit(Net(), data)
    earlier.save_checkpoint("earlier.ckpt")
    fit(trainer(10), Net(), data, ckpt_path="earlier.ckpt", weights_only=False)


globals()[os.environ["HABITS"]]()
