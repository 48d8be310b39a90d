"""The same through Lightning's Trainer in its barebones mode: no logger, checkpoint, progress bar, summary or check, which is the
fastest it has. Its loop keeps the loss on the device: it is the one contestant that does not read the loss every step."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from same import Ground, finish, ground
from torch.nn import functional


class Module(LightningModule):
    def __init__(self, given: Ground) -> None:
        super().__init__()
        self.given = given
        self.net = given.model

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        x, y = batch
        return functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> Any:
        optimizer = self.given.update()
        return [optimizer], [self.given.schedule(optimizer)]

    def on_train_epoch_start(self) -> None:
        self.given.clock.begin()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.given.clock.after_step(len(batch[1]))

    def on_train_epoch_end(self) -> None:
        self.given.clock.end()


def main() -> None:
    # Its advice (loader processes, the mode it runs in) is known, and not ours to follow here.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    given = ground()
    asked = given.asked
    trainer = Trainer(
        accelerator="gpu" if asked.device == "cuda" else "cpu",
        devices=1,
        max_epochs=asked.epochs,
        max_steps=-1 if asked.steps is None else asked.steps,
        barebones=True,
    )
    torch.set_num_threads(asked.threads)
    module = Module(given)
    trainer.fit(module, given.loader)
    finish(given, module.net)


if __name__ == "__main__":
    main()
