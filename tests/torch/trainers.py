"""Trainings whose loop is a library's: `python trainers.py TRAINING [hand FOLDER [STEPS]]`; with "hand" as in loops.py.

Prints what the trainer logged, the weights' digest, and a random number drawn afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import loops
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
warnings.filterwarnings("always", "Probe")


class Sentences(Dataset[Any]):
    def __init__(self, n: int) -> None:
        self.ids = torch.randint(0, 64, (n, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Any:
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def say(what: Any) -> None:
    """Print a line in one go: two processes write to one pipe."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def batches(size: int) -> DataLoader[Any]:
    g = torch.Generator().manual_seed(1)
    return DataLoader(
        TensorDataset(torch.randn(32, 8, generator=g), torch.randint(0, 4, (32,), generator=g)), size
    )


def transformers(h: Any, callback: Any = None, **more: Any) -> nn.Module:
    """Train with four batches to an update, evaluation, and checkpoints."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class ByHand(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            h.set_init_step(state.global_step)

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            h.stop()
            h.step()
            Training.begun = False

    class Training(Trainer):
        begun = False

        def compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            if model.training and not Training.begun:  # the batch is prepared before
                h.start(model)
                Training.begun = True
            return super().compute_loss(model, *args, **kwargs)

    sizes = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(sizes)
    settings = TrainingArguments(
        "checkpoints",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Training(
        model,
        settings,
        train_dataset=Sentences(48),
        eval_dataset=Sentences(8),
        callbacks=[callback or ByHand()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(**more)
    for line in trainer.state.log_history:
        say({key: value for key, value in line.items() if "runtime" not in key and "second" not in key})
    return model


def transformers_callback(h: Any, **more: Any) -> nn.Module:
    """Train with Probe's callback instead."""
    from probe_torch.callbacks.transformers import ProbeCallback

    return transformers(loops.Nothing(), callback=ProbeCallback(h), **more)


def lightning(
    h: Any, *, turns: bool = False, callback: Any = None, epochs: int = 2, resume: bool = False, **more: Any
) -> nn.Module:
    """Train with two batches to an update, or, with turns, two optimizers in manual optimization; and validation.

    epochs: after one, a checkpoint is left. resume: go on from it.
    """
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.judge = loops.Net(), nn.Linear(4, 1)
            self.automatic_optimization = not turns

        def training_step(self, batch: Any, i: int) -> Any:
            x, y = batch
            if not turns:
                loss = F.cross_entropy(self.net(x), y)
                self.log("trained", loss, on_step=False, on_epoch=True)
                return loss
            making, judging = self.optimizers()
            for optimizer, made, sign in (
                (judging, self.net(x).detach(), 1),
                (making, self.net(x), -1),
            ):
                optimizer.zero_grad()
                self.manual_backward(F.softplus(sign * self.judge(made)).mean())
                optimizer.step()
            return None

        def validation_step(self, batch: Any, i: int) -> None:
            self.log("validated", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            if turns:
                return [
                    torch.optim.Adam(self.net.parameters(), 1e-2),
                    torch.optim.Adam(self.judge.parameters()),
                ]
            return torch.optim.Adam(self.net.parameters(), 1e-2)

    class ByHand(lightning.Callback):
        def __init__(self) -> None:
            self.begun, self.updates = False, 0

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.updates = trainer.global_step
            h.set_init_step(4 if resume and turns else self.updates)

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, i: int) -> None:
            if not self.begun:
                h.start(module)
            self.begun = True

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, i: int) -> None:
            if trainer.global_step > self.updates:
                h.stop()
                h.step()
                self.begun, self.updates = False, trainer.global_step

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        val_check_interval=2,
        callbacks=[callback or ByHand()],
        **({} if turns else {"accumulate_grad_batches": 2}),
        **more,
    )
    module = Module()
    left = f"turns{turns}.ckpt"
    trainer.fit(module, batches(8), batches(16), ckpt_path=left if resume else None)
    if epochs == 1:
        trainer.save_checkpoint(left)
    say({name: float(value) for name, value in trainer.callback_metrics.items()})
    return module


def lightning_callback(h: Any, **how: Any) -> nn.Module:
    """Train with Probe's callback instead."""
    from probe_torch.callbacks.lightning import ProbeCallback

    return lightning(loops.Nothing(), callback=ProbeCallback(h), **how)


def lightning_checkpoints(h: Any) -> nn.Module:
    """Leave what the next ones go on from."""
    lightning(h, epochs=1)
    return lightning(h, turns=True, epochs=1)


def lightning_broken_off(h: Any) -> nn.Module:
    """End a training by an error in its first step, and train once more, by the same callback of Probe's."""
    from lightning.pytorch import LightningModule, Trainer
    from probe_torch.callbacks.lightning import ProbeCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.fails = nn.Linear(8, 4), True

        def training_step(self, batch: Any, i: int) -> Any:
            loss = self.net(batch[0]).square().mean()
            if self.fails:
                raise KeyError("mine")
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net.parameters(), 0.1)

    module, callback = Module(), ProbeCallback(h)
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    for module.fails in (True, False):
        trainer = Trainer(
            accelerator="cpu", max_steps=2, callbacks=[callback], enable_model_summary=False, **quiet
        )
        with suppress(KeyError):
            trainer.fit(module, batches(8))
    return module


def transformers_broken_off(h: Any) -> nn.Module:
    """Do the same, as the Trainer of transformers calls Probe's callback."""
    from probe_torch.callbacks.transformers import ProbeCallback

    state, model, callback = SimpleNamespace(global_step=0), nn.Sequential(nn.Linear(2, 2)), ProbeCallback(h)
    for state.global_step, fails in ((0, True), (7, False)):
        callback.on_train_begin(None, state, None)
        callback.on_step_begin(None, state, None, model=model)
        model(torch.ones(1, 2)).sum()
        if fails:
            continue
        model(torch.ones(1, 2)).sum().backward()
        callback.on_optimizer_step(None, state, None)
        callback.on_step_end(None, state, None)
    return model


def accelerate(h: Any) -> nn.Module:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = loops.Net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    net, optimizer, data = accelerator.prepare(net, optimizer, batches(4))
    begun = False
    for x, y in data:
        if not begun:
            h.start(net)
            begun = True
        with accelerator.accumulate(net):
            accelerator.backward(F.cross_entropy(net(x), y))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            h.stop()
            h.step()
            begun = False
    return net


def no_sync(h: Any) -> nn.Module:
    """Add two batches up, of which the first one's gradients are not averaged over the processes at once."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(loops.Net(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        (x, y), (u, v) = loops.batch(), loops.batch()
        with h.one_step(net.module):
            with net.no_sync():
                F.cross_entropy(net(x), y).backward()
            F.cross_entropy(net(u), v).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()
    return net


_FROM_CHECKPOINT = {"resume_from_checkpoint": "checkpoints/checkpoint-2"}
TRAININGS = {
    "transformers": transformers,
    "transformers_callback": transformers_callback,
    "resumed": partial(transformers, **_FROM_CHECKPOINT),
    "transformers_callback_resumed": partial(transformers_callback, **_FROM_CHECKPOINT),
    "lightning_checkpoints": lightning_checkpoints,
    "lightning": lightning,
    "lightning_turns": partial(lightning, turns=True),
    "lightning_resumed": partial(lightning, resume=True),
    "lightning_resumed_turns": partial(lightning, turns=True, resume=True),
    "lightning_callback": lightning_callback,
    "lightning_callback_turns": partial(lightning_callback, turns=True),
    "lightning_callback_resumed": partial(lightning_callback, resume=True),
    "lightning_callback_resumed_turns": partial(lightning_callback, turns=True, resume=True),
    # which starts the second process itself:
    "lightning_ddp": partial(lightning, devices=2, strategy="ddp_find_unused_parameters_true"),
    "lightning_broken_off": lightning_broken_off,
    "transformers_broken_off": transformers_broken_off,
    "accelerate": accelerate,
    "no_sync": no_sync,
}


def main(training: str, folder: str | None = None, steps: str = "[1, 2]") -> None:
    """Run a training, with ``steps`` dumped by hand to ``folder``, or nothing at all."""
    hand: Any = loops.Nothing()
    if folder is not None:
        from probe_torch import PrecisionDebugger

        hand = PrecisionDebugger(dump_path=folder, **{**loops.DUMPED, "step": json.loads(steps)})
    torch.manual_seed(0)
    trained = TRAININGS[training](hand)
    weights = b"".join(p.detach().numpy().tobytes() for p in trained.parameters())
    say(f"{hashlib.md5(weights).hexdigest()} {torch.rand(1).item()}")
    hand.close()


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[3:])
