"""What was typed becomes a complete spec, or every problem at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import BadInput
from paceline.spec.host import Host
from paceline.spec.resolve import check_values, parameters, resolve
from paceline.spec.rules.rule import DataShape, Known
from paceline.spec.rules.table import RULES, check
from paceline.spec.run import Spec
from paceline.spec.tasks import BUILTIN, Param
from paceline.spec.verdict import Verdict

HOST = Host(cores=8, memory_bytes=16 << 30, gpus=0, torch="2.13.0+cpu")
FULL = Host(
    8,
    16 << 30,
    0,
    "2.13.0+cpu",
    frozenset({"mpirun", "sbatch", "srun"}),
    frozenset({"accelerate", "mpi4py"}),
    "openmpi",
)
GPUS = Host(cores=8, memory_bytes=16 << 30, gpus=2, torch="2.13.0")
KNOWN = Known(HOST, DataShape("tensors"))


def looked(**found: Any) -> Known:
    """What the probe found in a user's task."""
    return replace(KNOWN, verdict=Verdict(**found))


COMPILING = replace(FULL, programs=FULL.programs | {"g++"})
HOPPER = Known(replace(GPUS, packages=frozenset({"torchao"})), linear=((32, 512), (20, 32)), capability=(9, 0))


def spec(
    known: Known = KNOWN, task: str = "mnist-convnet", params: Mapping[str, Any] | None = None, **asked: Any
) -> Spec:
    return resolve(task, asked, params=params or {}, defaults=BUILTIN[task].defaults, known=known)


def problems(known: Known = KNOWN, **asked: Any) -> list[str]:
    with pytest.raises(BadInput) as caught:
        spec(known, **asked)
    return caught.value.problems


def test_defaults_are_the_tasks_then_the_users() -> None:
    found = spec(lr=0.1)
    assert (found.lr, found.batch, found.test_batch, found.epochs) == (0.1, 32, 128, 3)


def test_no_auto_is_left() -> None:
    found = spec(on="1x3")
    assert found.autos() == []
    assert (found.threads, found.device, found.weight_decay) == (2, "cpu", 0.0)
    assert spec(optimizer="adamw").weight_decay == 0.01


@pytest.mark.parametrize(("on", "device"), [("1x1", "cuda"), ("1x2", "cuda"), ("1x3", "cpu")])
def test_auto_takes_the_gpus_where_there_is_one_each(on: str, device: str) -> None:
    assert spec(Known(GPUS), on=on).device == device


def test_a_cpu_build_of_torch_sees_no_gpu() -> None:
    assert spec(Known(Host(8, 16 << 30, 2, "2.13.0+cpu"))).device == "cpu"


def test_batch_per_rank_grows_the_global_batch() -> None:
    found = spec(on="1x4", batch_per_rank=16)
    assert (found.batch, found.batch_per_rank) == (64, 16)


def test_accumulate_multiplies_batch_per_rank_and_cuts_batch() -> None:
    assert spec(on="1x2", batch_per_rank=32, accumulate=4).batch == 256
    assert spec(on="1x2", batch=32, accumulate=4).batch == 32


def test_steps_replace_the_tasks_epochs() -> None:
    assert (spec(steps=9).steps, spec(steps=9).epochs) == (9, None)


def test_a_profile_counts_batches() -> None:
    """The task's own epochs give way; the user's are refused (its rule)."""
    assert (spec(profile="training").steps, spec(profile="training").epochs) == (100, None)
    assert spec(profile="inference", steps=7).steps == 7
    assert spec(profile="none").epochs == 3
    assert problems(Known(FULL), profile="training", wrap="accelerate")[0].endswith("(rule: profile-of-our-step)")


@pytest.mark.parametrize(
    ("asked", "carried"),
    [
        ({"on": "1x2"}, "memory"),
        ({"on": "1x2", "launcher": "mpirun"}, "memory"),
        ({"on": "1x2", "sync_every": 2}, "memory"),
        ({"on": "1x2", "messages": "backend"}, "backend"),
        ({"on": "1x2", "backend": "gloo"}, "backend"),  # who names a backend gets its messages
        ({"on": "1x2", "backend": "mpi", "launcher": "mpirun", "messages": "memory"}, "memory"),
        ({"on": "1x2", "sharding": "ddp"}, "backend"),
        ({"on": "1x2", "wrap": "accelerate"}, "backend"),
        ({"on": "1x2", "launcher": "slurm+srun"}, "backend"),
        ({"on": "1x1"}, "backend"),
    ],
)
def test_messages_go_through_memory_where_they_can_and_no_backend_was_named(
    asked: dict[str, Any], carried: str
) -> None:
    assert spec(Known(COMPILING), **asked).messages == carried
    if "messages" not in asked:
        assert spec(Known(FULL), **asked).messages == "backend", "without a compiler"


def test_a_stream_is_not_shuffled_unless_asked() -> None:
    stream = Known(HOST, DataShape("stream"))
    assert spec(stream).shuffle is False
    assert spec().shuffle is True


def test_all_problems_at_once() -> None:
    found = check_values({"batch": "abc", "lr": -1, "optimizer": "adm", "epochs": 1, "steps": 1})
    assert len(found) == 4
    assert any("did you mean 'adam'" in text for text in found)


def test_parameters_are_converted_or_refused() -> None:
    params = (Param("hidden", "int", 3), Param("deep", "bool", False), Param("rate", "float", 0.5))
    assert parameters(params, {"hidden": "8", "deep": "yes"}, task="t")[0] == {"hidden": 8, "deep": True, "rate": 0.5}
    wrong = parameters(params, {"hidden": "x", "deep": "perhaps", "hiden": "1"}, task="t")[1]
    assert len(wrong) == 3
    assert "did you mean 'hidden'?" in wrong[0]


# One breaking spec for every rule: a rule nobody can break, or a new one without a row, fails below.
EVERYTHING = Known(FULL, DataShape("tensors"))
STEP_GRAPH: dict[str, Any] = {"graph": "compile", "graph_of": "step"}
BREAKING: dict[str, tuple[Known, dict[str, Any]]] = {
    "torch-installed": (Known(Host(8, 16 << 30, 0, None)), {}),
    "one-machine": (KNOWN, {"on": "2x1"}),
    "slurm-installed": (KNOWN, {"launcher": "slurm+torchrun"}),
    "mpirun-installed": (KNOWN, {"launcher": "mpirun"}),
    "accelerate-installed": (KNOWN, {"wrap": "accelerate"}),
    "mpi4py-installed": (Known(replace(FULL, packages=frozenset())), {"launcher": "mpirun", "backend": "mpi"}),
    "mpi-makes-its-world": (EVERYTHING, {"launcher": "torchrun", "backend": "mpi"}),
    "mpi-on-a-cpu": (
        Known(replace(FULL, gpus=1, torch="2.13.0")),
        {"launcher": "mpirun", "backend": "mpi", "device": "cuda"},
    ),
    "nccl-on-a-gpu": (EVERYTHING, {"backend": "nccl", "device": "cpu"}),
    "srun-speaks-mpi": (Known(replace(FULL, mpi=None)), {"launcher": "slurm+srun", "backend": "mpi"}),
    "memory-has-peers": (Known(COMPILING), {"messages": "memory"}),
    "memory-of-one-machine": (Known(COMPILING), {"messages": "memory", "on": "2x1", "launcher": "slurm+srun"}),
    "memory-of-the-host": (
        Known(replace(COMPILING, gpus=2, torch="2.13.0")),
        {"messages": "memory", "on": "1x2", "device": "cuda"},
    ),
    "memory-carries-our-sums": (Known(COMPILING), {"messages": "memory", "on": "1x2", "sharding": "ddp"}),
    "memory-carries-our-steps": (Known(COMPILING), {"messages": "memory", "on": "1x2", "wrap": "accelerate"}),
    "memory-on-linux": (Known(replace(COMPILING, platform="darwin")), {"messages": "memory", "on": "1x2"}),
    "memory-has-a-compiler": (EVERYTHING, {"messages": "memory", "on": "1x2"}),
    "pin-has-cores": (EVERYTHING, {"pin": "cores", "on": "1x4", "threads": 3}),
    "pin-by-one-only": (EVERYTHING, {"pin": "cores", "launcher": "mpirun"}),
    "pin-on-linux": (Known(replace(FULL, platform="darwin")), {"pin": "cores"}),
    "by-hand-on-each": (EVERYTHING, {"launcher": "torchrun", "on": "2x1"}),
    "machine-exists": (EVERYTHING, {"launcher": "torchrun", "on": "2x1", "head": "a", "machine": 2}),
    "machine-by-hand": (EVERYTHING, {"launcher": "slurm+srun", "on": "2x1", "machine": 1}),
    "head-of-several": (EVERYTHING, {"launcher": "torchrun", "head": "a"}),
    "rendezvous-has-a-place": (EVERYTHING, {"launcher": "slurm+srun", "on": "2x1", "rendezvous": "c10d"}),
    "queue-needs-slurm": (EVERYTHING, {"partition": "main"}),
    "sbatch-options-in-form": (EVERYTHING, {"launcher": "slurm+srun", "sbatch": "exclusive"}),
    "sbatch-options-of-ours": (EVERYTHING, {"launcher": "slurm+srun", "sbatch": "--array=1-4"}),
    "activate-exists": (EVERYTHING, {"launcher": "slurm+srun", "activate": "/nowhere/activate"}),
    "accelerate-knows-the-backend": (EVERYTHING, {"launcher": "mpirun", "backend": "mpi", "wrap": "accelerate"}),
    "accelerate-drops-fp16": (EVERYTHING, {"precision": "fp16", "wrap": "accelerate"}),
    "accelerate-has-no-pure-format": (EVERYTHING, {"precision": "bf16-pure", "wrap": "accelerate"}),
    "accelerate-leaves-layers-out": (EVERYTHING, {"precision": "fp8", "wrap": "accelerate"}),
    "tf32-on-a-gpu": (KNOWN, {"precision": "tf32"}),
    "tf32-on-a-new-gpu": (replace(HOPPER, capability=(7, 5)), {"precision": "tf32"}),
    "fp8-on-a-gpu": (KNOWN, {"precision": "fp8"}),
    "torchao-installed": (Known(GPUS), {"precision": "fp8"}),
    "fp8-on-a-new-gpu": (replace(HOPPER, capability=(8, 0)), {"precision": "fp8"}),
    "fp8-has-layers": (replace(HOPPER, linear=((20, 32), (32, 20))), {"precision": "fp8"}),
    "fp8-whole-layers": (HOPPER, {"precision": "fp8", "sharding": "fsdp"}),
    "fp8-in-these-graphs": (HOPPER, {"precision": "fp8", "graph": "captured"}),
    "fused-on-a-cpu": (Known(replace(GPUS, programs=COMPILING.programs)), {"kernel": "fused", "device": "cuda"}),
    "fused-has-a-compiler": (KNOWN, {"kernel": "fused"}),
    "fused-has-this-format": (Known(COMPILING), {"kernel": "fused", "precision": "fp16"}),
    "fused-has-no-export": (Known(COMPILING), {"kernel": "fused", "graph": "export"}),
    "fused-of-whole-layers": (
        Known(COMPILING, tensor_plan=True),
        {"kernel": "fused", "sharding": "tensor", "on": "1x2"},
    ),
    "fp16-decides-together": (KNOWN, {"precision": "fp16", "sync_every": 4, "on": "1x2"}),
    "one-wrapper": (EVERYTHING, {"sharding": "ddp", "wrap": "accelerate", "on": "1x2"}),
    "ddp-has-options": (KNOWN, {"bucket_mb": 5, "on": "1x2"}),
    "compress-has-a-listener": (KNOWN, {"sharding": "ddp", "compress": "bf16"}),
    "compress-makes-smaller": (KNOWN, {"sharding": "ddp", "compress": "bf16", "precision": "bf16-pure", "on": "1x2"}),
    "reshard-of-fsdp": (KNOWN, {"sharding": "ddp", "reshard": False, "on": "1x2"}),
    "fused-takes-whole-tensors": (KNOWN, {"sharding": "fsdp", "optimizer": "sgd", "update": "fused", "on": "1x2"}),
    "sync-every-of-copies": (KNOWN, {"sync_every": 4, "sharding": "ddp", "on": "1x2"}),
    "sync-every-has-others": (KNOWN, {"sync_every": 4}),
    "sync-every-comes": (KNOWN, {"sync_every": 4, "steps": 3, "on": "1x2"}),
    "profile-of-a-whole-model": (KNOWN, {"profile": "training", "sharding": "fsdp"}),
    "remat-is-eager": (KNOWN, {"remat": "full", "graph": "compile"}),
    "table-split-of-tables": (KNOWN, {"table_split": "columns"}),
    "cut-over-several": (KNOWN, {"sharding": "tensor"}),
    "cut-is-eager": (KNOWN, {"sharding": "embedding", "on": "1x2", "graph": "compile"}),
    "tensor-has-a-plan": (replace(KNOWN, tensor_plan=False), {"sharding": "tensor", "on": "1x2"}),
    "tensor-cuts-heads": (KNOWN, {"task": "transformer", "sharding": "tensor", "on": "1x3"}),
    "embedding-has-tables": (replace(KNOWN, tables=False), {"sharding": "embedding", "on": "1x2"}),
    "sparse-goes-our-way": (replace(KNOWN, sparse=True), {"sharding": "ddp", "on": "1x2"}),
    "sparse-has-an-optimizer": (replace(KNOWN, sparse=True), {"optimizer": "rmsprop"}),
    "sparse-leaves-rows-alone": (replace(KNOWN, sparse=True), {"optimizer": "sgd", "momentum": 0.9}),
    "memory-cap-has-room": (KNOWN, {"memory_cap": "8M"}),
    "ranks-fit-memory": (KNOWN, {"on": "1x999", "batch": 1000}),
    "threads-in-reason": (KNOWN, {"threads": 100_000}),
    "sample-for-every-rank": (KNOWN, {"on": "1x4", "batch": 3}),
    "accumulate-has-samples": (KNOWN, {"on": "1x4", "batch": 31, "accumulate": 8}),
    "accumulate-has-a-maker": (EVERYTHING, {"accumulate": 2, "wrap": "accelerate"}),
    "cuda-present": (KNOWN, {"device": "cuda"}),
    "a-gpu-each": (Known(GPUS), {"device": "cuda", "on": "1x3"}),
    "own-optimizer-exists": (replace(KNOWN, own_optimizer=False), {"optimizer": "task"}),
    "momentum-has-a-place": (KNOWN, {"optimizer": "adam", "momentum": 0.9}),
    "nesterov-has-momentum": (KNOWN, {"optimizer": "sgd", "nesterov": True}),
    "fused-exists": (KNOWN, {"optimizer": "rmsprop", "update": "fused"}),
    "one-decay": (KNOWN, {"lr_decay": 0.1, "schedule": "cosine"}),
    "schedule-uses-factor": (KNOWN, {"schedule_factor": 0.5}),
    "schedule-uses-every": (KNOWN, {"schedule": "exponential", "schedule_every": 2}),
    "schedule-warms-itself": (KNOWN, {"schedule": "onecycle", "warmup": 5}),
    "own-schedule-exists": (replace(KNOWN, own_schedule=False), {"schedule": "task"}),
    "warmup-ends": (KNOWN, {"steps": 5, "warmup": 5}),
    "lr-batch-is-used": (KNOWN, {"lr_batch": 64}),
    "data-exists": (KNOWN, {"data": "/nowhere/at/all"}),
    "target-in-reach": (KNOWN, {"target": 97}),
    "target-has-a-direction": (Known(HOST, DataShape("tensors"), knows_better=False), {"target": 0.5}),
    "stop-has-a-target": (KNOWN, {"stop_at": "target"}),
    "plateau-has-a-direction": (replace(KNOWN, knows_better=False), {"stop_at": "plateau:2"}),
    "best-has-a-direction": (replace(KNOWN, knows_better=False), {"keep": "best"}),
    "stop-after-an-average": (
        KNOWN,
        {"on": "1x2", "sync_every": 4, "stop_at": "plateau:2", "evaluate_every": 3},
    ),
    "coupled-loss-in-one-piece": (looked(loss="coupled"), {"accumulate": 2}),
    "coupled-loss-of-outputs": (looked(loss="coupled", rows=False), {"on": "1x2"}),
    "coupled-loss-of-one-shape": (looked(loss="coupled", ragged=True), {"on": "1x2"}),
    "coupled-loss-of-all-ranks": (looked(loss="coupled"), {"on": "1x2", "sync_every": 2}),
    "whole-weights-for-hooks": (looked(hooks=True), {"on": "1x2", "sharding": "fsdp"}),
    "gradients-in-one-piece": (looked(bends_gradients=True), {"on": "1x2"}),
    "model-in-one-piece": (looked(buffers="together"), {"on": "1x2"}),
    "evaluation-in-one-piece": (looked(together_in_evaluation=True), {"on": "1x2"}),
    "evaluation-leaves-no-trace": (looked(moves_in_evaluation=True), {}),
    "batchnorm-has-two-samples": (
        replace(looked(needs_two=True), train=DataShape("tensors", 33)),
        {"batch": 32},
    ),
    "state-moves-once-a-step": (looked(changes=("count",)), {"accumulate": 2}),
    "graph-of-what-stays": (looked(changes=("count",), changes_python=True), {"graph": "export"}),
    "own-step-is-eager": (replace(KNOWN, own_step=True), {"remat": "full"}),
    "own-step-of-whole-models": (replace(KNOWN, own_step=True), {"sharding": "ddp", "on": "1x2"}),
    "own-step-in-one-piece": (replace(KNOWN, own_step=True), {"accumulate": 2}),
    "own-step-updates-itself": (replace(KNOWN, own_step=True), {"clip": 1.0}),
    "own-step-recombines": (replace(looked(loss="coupled"), own_step=True), {"on": "1x2"}),
    "data-by-number-in-the-rank": (replace(looked(moves_data=True), train=DataShape("dataset")), {"workers": 1}),
    "by-number-outside-of-graphs": (replace(KNOWN, sets_by_step=True), {"graph": "export"}),
    "synced-norm-in-one-piece": (KNOWN, {"buffers": "sync", "accumulate": 2}),
    "synced-norm-of-our-step": (KNOWN, {"buffers": "sync", "on": "1x2", "sync_every": 2}),
    "cut-is-known": (looked(loss="coupled", unknown="no"), {"accumulate": 2}),
    "workers-have-work": (KNOWN, {"workers": 2}),
    "stream-has-its-order": (Known(HOST, DataShape("stream")), {"shuffle": True}),
    "stream-has-an-end": (Known(HOST, DataShape("stream", endless=True)), {"epochs": 1}),
    "stream-in-the-rank": (Known(HOST, DataShape("stream")), {"workers": 1, "shuffle": False}),
    "profile-counts-batches": (KNOWN, {"profile": "training", "epochs": 1}),
    "profile-of-one-process": (KNOWN, {"profile": "training", "on": "1x2"}),
    "profile-starts-itself": (KNOWN, {"profile": "inference", "launcher": "torchrun"}),
    "profile-of-our-step": (KNOWN, {"profile": "training", "accumulate": 2}),
    "profile-has-no-score": (KNOWN, {"profile": "inference", "target": 0.9}),
    "profile-is-not-evaluated": (KNOWN, {"profile": "training", "evaluate_every": 5}),
    "profile-stops-by-itself": (KNOWN, {"profile": "training", "stop_at": "plateau:5"}),
    "profile-leaves-no-weights": (KNOWN, {"profile": "training", "keep": "best"}),
    "evaluation-comes": (KNOWN, {"evaluate_every": 11, "steps": 10}),
    "captured-on-a-gpu": (KNOWN, {"graph": "captured"}),
    "captured-is-a-step": (Known(GPUS), {"graph": "captured", "graph_of": "model"}),
    "step-of-a-graph": (KNOWN, {"graph": "export", "graph_of": "step"}),
    "one-graph-has-no-if": (KNOWN, {"task": "features", "params": {"early_exit": True}, "graph": "export"}),
    "step-graph-of-replicas": (KNOWN, {**STEP_GRAPH, "on": "1x2", "sync_every": 2}),
    "graph-of-whole-models": (KNOWN, {"graph": "compile", "sharding": "fsdp", "on": "1x2"}),
    "graph-of-our-step": (EVERYTHING, {"graph": "export", "wrap": "accelerate"}),
    "profile-is-eager": (KNOWN, {"graph": "compile", "profile": "training"}),
    "step-graph-in-one-piece": (KNOWN, {**STEP_GRAPH, "accumulate": 2}),
    "step-graph-looks-at-nothing": (KNOWN, {**STEP_GRAPH, "precision": "fp16"}),
    "step-graph-reads-its-rate": (Known(GPUS), {"graph": "captured", "optimizer": "sgd", "update": "foreach"}),
    "step-graph-has-its-formulas": (KNOWN, {**STEP_GRAPH, "update": "single"}),
    "step-graph-has-steps": (Known(GPUS), {"graph": "captured", "steps": 3}),
    "stop-after-a-graph": (KNOWN, {**STEP_GRAPH, "stop_at": "plateau:1", "evaluate_every": 1}),
    "export-has-samples": (KNOWN, {"graph": "export", "batch": 7, "on": "1x2", "accumulate": 2}),
}


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_each_rule_refuses_and_only_it(rule: str) -> None:
    known, asked = BREAKING[rule]
    found = problems(known, **asked)
    assert [text for text in found if f"(rule: {rule})" in text], found
    assert len(found) == 1, found
    assert "{" not in found[0], "every word of the sentence is filled in"


def test_fp8_is_decided_by_layers_and_the_gpu_where_they_are_known() -> None:
    """One layer that fits is enough; a queue's GPUs are not this machine's, and what nobody has looked at breaks no rule."""
    assert spec(HOPPER, precision="fp8").device == "cuda"
    assert spec(replace(HOPPER, linear=None, capability=None), precision="fp8").precision == "fp8"
    old = replace(HOPPER, capability=(8, 0), host=replace(FULL, packages=frozenset({"torchao"})))
    assert spec(old, precision="fp8", launcher="slurm+srun", gres="gpu:1").device == "cuda"
    said = problems(replace(HOPPER, linear=((20, 32), (32, 20))), precision="fp8")
    assert said[0].startswith("precision=fp8, but none of the model's 2 linear layers has both sizes a multiple of 16")
    assert "capability 8.6, and" in problems(replace(HOPPER, capability=(8, 6)), precision="fp8")[0]


def test_a_graph_of_a_step_takes_the_update_that_works_in_it() -> None:
    gpu = Known(GPUS)
    assert [spec(graph=graph).graph_of for graph in ("eager", "compile", "export")] == ["model"] * 3
    assert spec(gpu, graph="captured").graph_of == "step"
    assert (spec().update, spec(**STEP_GRAPH).update, spec(graph="compile").update) == ("single", "foreach", "single")
    ways = {name: spec(gpu, graph="captured", optimizer=name).update for name in ("adam", "adamw", "rmsprop", "sgd")}
    assert ways == {"adam": "foreach", "adamw": "foreach", "rmsprop": "foreach", "sgd": "fused"}
    assert spec(gpu, graph="captured", schedule="onecycle").update == "single", "torch's foreach Adam looks at its beta"
    assert spec(**STEP_GRAPH, optimizer="sgd", momentum=0.9, schedule="onecycle").momentum == 0.9, "no cycle moves it"
    assert spec(**STEP_GRAPH, steps=2).steps == spec(graph="export", batch=2).batch == 2
    assert "(rule: step-graph-has-steps)" in problems(**STEP_GRAPH, steps=1)[0]
    assert "use update=fused, or" in problems(gpu, graph="captured", optimizer="sgd", update="foreach")[0]


@pytest.mark.parametrize(
    "value", ["plateau", "plateau:0", "plateau:-1", "plateau:2.5", "plateau:5 ", "targets", "target:2"]
)
def test_what_stop_at_may_say(value: str) -> None:
    said = problems(stop_at=value)
    assert said == [f"stop_at={value}: must be target, or plateau:N with a whole number of evaluations (plateau:5)"]


def test_a_trial_does_not_stop_early_and_keeps_nothing() -> None:
    found = spec(stop_at="plateau:4", keep="best", evaluate_every=2, epochs=9)
    assert (found.patience, spec(stop_at="target", target=0.5).patience, spec().patience) == (4, None, None)
    trial = found.of_steps(30)
    assert (trial.stop_at, trial.patience, trial.keep, trial.evaluate_every) == (None, None, "last", None)


def test_a_sound_spec_breaks_no_rule() -> None:
    assert check(spec(on="1x2", batch=64), KNOWN) == []


def test_a_slurm_job_gets_the_cpus_it_asks_for() -> None:
    """Threads come from what the job asks for, not from the machine the command is given on."""
    assert (spec(EVERYTHING, launcher="slurm+srun").threads, spec(EVERYTHING, launcher="slurm+srun").cpus_per_task) == (
        1,
        1,
    )
    assert spec(EVERYTHING, launcher="slurm+srun", cpus_per_task=4).threads == 4
    assert spec(EVERYTHING, launcher="slurm+srun", threads=3).cpus_per_task == 3
    assert spec(EVERYTHING, launcher="slurm+srun", gres="gpu:2").device == "cuda"


def test_the_key_is_the_experiment() -> None:
    assert spec().key() == spec(timeout=9).key(), "how long we would wait is not what is computed"
    assert spec().key() != spec(seed=9).key()


def test_replaced_data_is_another_experiment(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"12")
    before = spec(data=str(tmp_path)).key()
    assert spec(data=str(tmp_path / ".." / tmp_path.name)).key() == before, "the same folder by another name"
    (tmp_path / "x.bin").write_bytes(b"123")
    assert spec(data=str(tmp_path)).key() != before


def test_a_folder_may_be_called_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "auto").mkdir()
    monkeypatch.chdir(tmp_path)
    assert spec(data="auto").autos() == []
