"""The task as the loop sees it: what the user wrote, with torch's usual answers where they wrote nothing. It knows no rank and no dtype."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from paceline.base.compiler_error import cause, of_compiler
from paceline.base.errors import PacelineError, RunFailed
from paceline.spec.verdict import Verdict
from paceline.worker.tasks.forms import Loss, Sums, loss_of
from paceline.worker.tasks.loss_module import attach
from paceline.worker.tasks.returned import bare, loss_terms, score_forms
from paceline.worker.tasks.usual import usual_score

_OPTIONAL = ("augment", "units", "tensor_plan", "schedule", "optimizers", "step", "on_step", "on_epoch")
ONE_VALUE = "more than 1 value per channel"  # what torch's BatchNorm says of a single sample
_FROM_LOADER = "in DataLoader worker process"


@dataclass(frozen=True, slots=True)
class Task:
    """Three functions the user must give, and those they may."""

    name: str
    model: Callable[[], torch.nn.Module]
    train_data: Callable[[], Any]
    test_data: Callable[[], Any]
    forward: Callable[[torch.nn.Module, Any], Any]
    loss: Callable[[Any, Any], Any]
    score: Callable[[Any, Any], Any]
    collate: Callable[[list[Any]], Any] | None = None
    augment: Callable[[Any, torch.Tensor], Any] | None = None  # (training batch, a random key for each sample) -> batch
    units: Callable[[torch.nn.Module], list[torch.nn.Module]] | None = None  # repeated blocks, for fsdp and remat
    score_all: Callable[[Any, Any], Any] | None = None  # (outputs, targets) of the whole test set -> scores
    score_of: Callable[[dict[str, Any]], Any] | None = None  # what `score` gives, summed over the test set -> scores
    tensor_plan: Callable[[torch.nn.Module], dict[str, Any]] | None = None  # module -> style, for sharding=tensor
    optimizer: Callable[[torch.nn.Module, float], torch.optim.Optimizer] | None = None  # for optimizer=task
    own_rate: Callable[[torch.nn.Module], float] | None = None  # what that asks for where nobody sets lr
    optimizers: Callable[[torch.nn.Module, float], Any] | None = None  # several by name, for `step`
    schedule: Callable[..., Any] | None = None  # (step, steps) -> factor, or (optimizer, steps | epochs) -> scheduler
    step: Callable[..., Any] | None = None  # ([model,] batch, optimizers) -> losses: a whole step, made by the task
    on_step: Callable[..., Any] | None = None  # ([model,] step, steps), before each step
    on_epoch: Callable[..., Any] | None = None  # ([model,] epoch, epochs), before each epoch
    loss_module: torch.nn.Module | None = None  # the loss, where it has tensors of its own: a part of the model
    ignored: tuple[str, ...] = ()  # functions with a hook's name that are meant for something else
    better: str | None = None
    source: Path | None = None
    couples_samples: bool = False  # it says so itself: couples = "batch"
    verdict: Verdict = field(
        default_factory=Verdict
    )  # how loss and scores recombine; of a built-in task, and where nobody looked: means

    @property
    def defines(self) -> list[str]:
        """For the record: which optional functions are in use."""
        return [name for name in _OPTIONAL if getattr(self, name) is not None]

    def build_model(self) -> torch.nn.Module:
        with users_code(f"{self.name}: model()", self.source):
            model = self.model()
        if not isinstance(model, torch.nn.Module):
            kind = type(model).__name__
            raise RunFailed(f"{self.name}: model() returned a {kind}, not a torch.nn.Module", kind="task")
        if self.loss_module is not None:
            attach(model, self.loss_module, self.name)
        if lazy := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
            raise RunFailed(
                f"{self.name}: model() returned parameters without a shape ({', '.join(lazy[:3])}), which a lazy module gets in its first "
                "forward pass: make that pass in model(), on a few zeros, before it returns the model",
                kind="task",
            )
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise RunFailed(f"{self.name}: model() has no trainable parameter", kind="task")
        if any(parameter.is_complex() for parameter in model.parameters()):
            raise RunFailed(
                f"{self.name}: model() has complex parameters, which no precision here can hold", kind="task"
            )
        return model

    def loss_of(self, outputs: Any, batch: Any, num: int, num_global: int | None = None) -> Loss:
        """The loss of `num` samples, which are a part of a batch of `num_global`."""
        terms = loss_terms(self.loss(outputs, batch), self.verdict, name=self.name)
        return loss_of(terms, num=num, num_global=num if num_global is None else num_global)

    def score_sums(self, outputs: Any, batch: Any, num: int) -> Sums:
        """Of the scores that add up over samples; those of the whole test set are not among them."""
        if self.score_of is not None:  # sums that are no scores yet
            return {}
        value = self.score(outputs, batch)
        forms = score_forms(value, self.verdict, name=self.name)
        whole = self.whole_scores(value) if self.scores_whole else frozenset()
        return {name: form.figure(num) for name, form in forms.items() if name not in whole}

    @property
    def couples(self) -> bool:
        """The loss of a batch is not made of the losses of its parts."""
        return self.verdict.loss == "coupled"

    @property
    def waits_as(self) -> str | None:
        """What meets the other ranks inside a step, so that every rank needs a sample."""
        if self.step is not None:
            return "a step of the task's own"
        return "a loss that couples samples" if self.couples else None

    @property
    def evaluates(self) -> bool:
        """Whether anything is computed on the test set."""
        return not (self.loss is no_loss and self.score is no_score and self.score_all is None)

    @property
    def scores_whole(self) -> bool:
        """Whether some score may have to be computed from the outputs of the whole test set."""
        kinds = {self.verdict.score_kind, *self.verdict.scores.values()}
        return "whole" in kinds and self.score not in (usual_score, no_score) and self.score_of is None

    def whole_scores(self, value: Any) -> frozenset[str]:
        """The names of those scores, of what `score` returned. A number that nobody could look at is one of them; a
        form says itself how it adds up."""
        kinds, usual = self.verdict.scores, self.verdict.score_kind
        return frozenset(name for name in bare(value) if kinds.get(name, usual) == "whole")


def no_loss(outputs: Any, batch: Any) -> Any:
    """Of a task that makes its own steps, and says nothing of a loss on the test set."""
    raise AssertionError("nobody computes it")


def no_score(outputs: Any, batch: Any) -> Sums:
    """Of a task whose only scores are those of the whole test set."""
    return {}


def better_of(task: Task, score: str | None) -> str | None:
    """Whether a higher or a lower score is better, as the task says or as it is for the usual scores."""
    return task.better or {"accuracy": "higher", "mae": "lower"}.get(score or "")


@contextlib.contextmanager
def users_code(name: str, source: Path | None) -> Generator[None]:
    """Whatever the user's code throws becomes one sentence that names its own line; the traceback stays in the log."""
    try:
        yield
    except PacelineError:
        raise
    except SystemExit as error:
        raise RunFailed(
            f"{name}: the task called exit({error.code if error.code is not None else ''})", kind="task"
        ) from error
    except Exception as error:
        text = sentence(error)
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
            raise RunFailed(f"{name}: out of memory ({text[:200]})", kind="memory") from error
        if ONE_VALUE in text:
            text += "; BatchNorm needs two samples on a rank: choose another batch size or number of processes"
        raise RunFailed(f"{name}: {text}{_where(error, source)}", kind="task") from error


def sentence(error: BaseException) -> str:
    """An exception as one line that any file and terminal can take."""
    text = str(error)
    if _FROM_LOADER in text:  # torch gives the text of a whole traceback; the exception itself is its last line
        text = text.strip().splitlines()[-1]
    elif of_compiler(error):  # of the user's own torch.compile
        text = cause(error)
    else:
        text = f"{type(error).__name__}: {text.strip() or 'no message'}"
    # A file name that is no text ("\udcff") comes out as its escape: no encoding takes it as it is.
    return " ".join(text.split())[:400].encode(errors="backslashreplace").decode()


def _where(error: BaseException, source: Path | None) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f" (line {error.lineno})"
    for frame in reversed(frames):
        if source is not None and Path(frame.filename) == source:
            return f" ({source.name}, line {frame.lineno}, in {frame.name})"
    if source is not None and _FROM_LOADER in str(error):
        lines = re.findall(rf'File "{re.escape(str(source))}", (line \d+, in \w+)', str(error))
        return f" ({source.name}, {lines[-1]})" if lines else ""
    return ""
