"""A user's program on Hugging Face's Trainer, with the habits that `HABITS` names."""

import os

import torch
from everspot_train.frameworks.transformers import train
from strike import digest, record, strike
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

HABITS = os.environ.get("HABITS", "").split()


class Recorder(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        strike(f"step {state.global_step}")

    def on_prediction_step(self, args, state, control, **_):
        strike(f"evaluation {state.global_step}")

    def on_log(self, args, state, control, logs, **_):
        names = ("loss", "eval_loss", "learning_rate", "grad_norm")
        if any(name in logs for name in names):
            record(
                call=args.seed, step=state.global_step, epoch=state.epoch, **{n: logs[n] for n in names if n in logs}
            )


class Struck(Trainer):
    def _save_rng_state(self, output_dir):
        strike(f"save {self.state.global_step}")
        super()._save_rng_state(output_dir)


def make_trainer(model, seed=1):
    random = torch.Generator().manual_seed(0)
    rows = [{"input_ids": (row := torch.randint(0, 50, (8,), generator=random)), "labels": row} for _ in range(44)]
    settings = {
        "output_dir": "checkpoints", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
        "num_train_epochs": 2, "learning_rate": 0.01, "warmup_steps": 3, "lr_scheduler_type": "cosine", "seed": seed,
        "logging_steps": 1, "save_steps": 5, "eval_strategy": "steps", "eval_steps": 4, "report_to": [],
        "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    if "best" in HABITS:
        settings |= {"load_best_model_at_end": True, "eval_steps": 5, "save_total_limit": 1}
    if "early" in HABITS:
        settings |= {"metric_for_best_model": "loss", "greater_is_better": False}
    if "epochs" in HABITS:
        settings |= {"eval_strategy": "epoch", "save_strategy": "epoch"}
    arguments = TrainingArguments(**settings)
    callbacks = [Recorder()]
    if "early" in HABITS:
        callbacks.insert(0, EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=10.0))
    return Struck(model, arguments, train_dataset=rows[:32] + rows[:4], eval_dataset=rows[36:], callbacks=callbacks)


torch.set_num_threads(1)
set_seed(3)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
)
first = make_trainer(model)
output = train(first, resume_from_checkpoint=None)
record(call=1, steps=output.global_step, weights=digest(first.model))
strike("after")
if "twice" in HABITS:
    second = make_trainer(first.model, seed=2)
    output = train(second)
    record(call=2, steps=output.global_step, weights=digest(second.model))
