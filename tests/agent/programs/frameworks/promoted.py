"""Programs whose run is as large as `EPOCHS` and `SAMPLES` say, with a schedule that ends with it. `FRAMEWORK`: the
framework. They print each step with its learning rate."""

import os

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
EPOCHS, SAMPLES = int(os.environ["EPOCHS"]), int(os.environ["SAMPLES"])


def show(step: int, optimizer: torch.optim.Optimizer) -> None:
    print(f"made {step} {optimizer.param_groups[0]['lr']:.6f}", flush=True)


def one_cycle(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * SAMPLES // 4, pct_start=0.25)


def transformers() -> None:
    from everspot_train.frameworks.transformers import train
    from trainer_net import TrainerNet
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Show(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **context):
            show(state.global_step + 1, context["optimizer"])

    rows = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(SAMPLES)]
    arguments = TrainingArguments(
        "checkpoints", num_train_epochs=EPOCHS, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    model = TrainerNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizers = (optimizer, one_cycle(optimizer))
    train(Trainer(model, arguments, train_dataset=rows, callbacks=[Show()], optimizers=optimizers))


def lightning() -> None:
    import lightning
    from everspot_train.frameworks.lightning import fit

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            show(self.global_step + 1, self.optimizers().optimizer)
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": one_cycle(optimizer), "interval": "step"}}

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(SAMPLES, 4)), batch_size=4)
    settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    fit(lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", **settings), Net(), data)


def accelerate() -> None:
    from accelerate import Accelerator
    from everspot_train.frameworks.accelerate import ResumableLoop

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(SAMPLES, 4)), 4)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, one_cycle(optimizer))
    loop = ResumableLoop(accelerator)
    for _ in loop.epochs(EPOCHS):
        for (samples,) in loop.batches(data):
            show(loop.step + 1, optimizer)
            accelerator.backward(model(samples).square().mean())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


globals()[os.environ["FRAMEWORK"]]()
