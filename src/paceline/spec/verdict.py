"""What the probe found out about a user's task: how its loss and its scores recombine from parts of a batch. Plain data, for rules, ranks
and the record."""

from __future__ import annotations

from typing import Literal

from paceline.spec.values import Frozen

# mean: over samples; total: a sum over samples; ratio: a sum over a count of the task's own; coupled: none of these, so it is computed from
# the outputs of the whole batch.
LossKind = Literal["mean", "total", "ratio", "coupled"]
# whole: it does not recombine, so it is computed from the outputs of the whole test set.
ScoreKind = Literal["mean", "total", "ratio", "whole"]
# How forward treats the samples of a batch in training: each by itself; through statistics of the batch (BatchNorm); together, so that a
# part of a batch gives other outputs.
ModelKind = Literal["apart", "batchnorm", "together"]
Note = tuple[str, str]  # one word for scripts, and a sentence
OTHER_DATA = "other-data"  # of a note: a run had other samples than the look at its task


class Verdict(Frozen):
    """`changes`: what forward or loss leaves changed, and computes with the next time. `unknown`: why nothing could be
    found out. `notes`: what a reader must know of the data, for the record's warnings."""

    loss: LossKind = "mean"
    terms: dict[str, LossKind] = {}
    scores: dict[str, ScoreKind] = {}
    score_kind: ScoreKind = "mean"  # of a bare score that is not among them
    uses_inputs: bool = True  # a score of the whole test set looks at the inputs too
    buffers: ModelKind = "apart"
    needs_two: bool = False  # samples in every part: BatchNorm over single values
    together_in_evaluation: bool = False
    rows: bool = True  # outputs have rows, which ranks can gather: they are not the loss itself
    ragged: bool = False  # batches have tensors of other shapes for other samples: padded to the longest
    changes: tuple[str, ...] = ()
    changes_by: Literal["calls", "data"] = "data"  # calls: once a forward in training, whatever the samples are
    moves_weights: bool = False  # forward or loss changes parameters in place (max_norm, clipped weights)
    hooks: bool = False  # on gradients of parameters
    bends_gradients: bool = False  # a hook or a function of autograd makes others of them: clipped ones, or their signs
    seeds: bool = False  # forward or loss seeds a generator of random numbers
    changes_python: bool = False  # something that is no tensor of the model, so no graph would change it
    counts_in_evaluation: bool = False  # numbers in Python move there too, and are put back
    moves_in_evaluation: bool = False  # what is computed moves there too, and nothing can be put back
    differentiates: bool = False  # the loss takes gradients of its own (of outputs by inputs), in evaluation too
    moves_data: bool = False  # on_step or on_epoch changes what the data set gives
    draws: bool = False  # forward or loss draws random numbers
    data_draws: bool = False  # a Dataset draws some while it makes a sample
    samples: int = 0  # that were looked at
    precision: str = "64"  # bits of the numbers it was computed with
    unknown: str | None = None
    notes: tuple[Note, ...] = ()

    @property
    def in_words(self) -> str:
        """One line."""
        loss = {
            "mean": "a mean over samples", "total": "a sum over samples", "ratio": "a sum over its own count",
            "coupled": "couples the samples of a batch",
        }[self.loss]  # fmt: skip
        parts = [f"loss is {loss}" if self.loss != "coupled" else f"loss {loss}"]
        parts += [f"{name} is {_SCORES[kind]}" for name, kind in self.scores.items()]
        parts += {"apart": [], "batchnorm": ["BatchNorm"], "together": ["forward couples the samples of a batch"]}[
            self.buffers
        ]
        parts += ["draws random numbers"] if self.draws else []
        parts += ["samples are drawn at random"] if self.data_draws else []
        parts += [f"changes {', '.join(self.changes[:3])}"] if self.changes else []
        if self.unknown:
            return f"could not be probed: {self.unknown}"
        return f"{'; '.join(parts)} (looked at {self.samples} samples)"


_SCORES = {
    "mean": "a mean over samples", "total": "a sum over samples", "ratio": "a sum over its own count",
    "whole": "computed over the whole test set",
}  # fmt: skip
