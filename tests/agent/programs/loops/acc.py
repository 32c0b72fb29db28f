"""A user's loop on Accelerate, with the habits that `HABITS` names."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from everspot_train.frameworks.accelerate import ResumableLoop
from strike import digest, record, strike
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HABITS = os.environ.get("HABITS", "").split()

torch.set_num_threads(1)
set_seed(3)
naming = ProjectConfiguration(project_dir="project", automatic_checkpoint_naming="naming" in HABITS)
seedable = DataLoaderConfiguration(use_seedable_sampler="seedable" in HABITS)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, project_config=naming, dataloader_config=seedable)
random = torch.Generator().manual_seed(0)
inputs = torch.randn(60, 4, generator=random)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
model, optimizer, schedule, train_loader, test_loader = accelerator.prepare(
    model, optimizer, schedule, DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=20)
)


class Struck:
    """A registered object, whose state is read inside of a save."""

    def state_dict(self):
        strike(f"save {loop.step}")
        return {}

    def load_state_dict(self, state):
        pass


accelerator.register_for_checkpointing(Struck())
loop = ResumableLoop(accelerator)
for epoch in loop.epochs(3):
    model.train()
    for x, y in loop.batches(train_loader):
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        total = float(sum(value.double().sum() for value in model.parameters()))
        record(
            call=1, step=f"{epoch} {total!r} {float(x.sum())!r}", loss=loss.item(), rate=optimizer.param_groups[0]["lr"]
        )
        loop.log(loss=loss)
        if accelerator.sync_gradients:
            strike(f"step {loop.step + 1}")
    model.eval()
    with torch.no_grad():
        test_loss = sum(nn.functional.mse_loss(model(x), y).item() for x, y in test_loader)
    strike(f"evaluation {epoch}")
    record(call=1, step=f"epoch {epoch}", test_loss=test_loss)
    loop.log(test_loss=test_loss)
    if "early" in HABITS and epoch == 1:
        loop.finish()
record(call=1, steps=24 if accelerator.num_processes == 1 else 12, weights=digest(accelerator.unwrap_model(model)))
strike("after")
accelerator.end_training()
