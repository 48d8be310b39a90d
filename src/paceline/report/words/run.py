"""What is said of one run beside its tables: what held it back, what was not measured, speed, energy, cost, and where everything lies."""

from __future__ import annotations

from paceline.records.applied import left_out
from paceline.records.limits import bound, stragglers
from paceline.records.measured import Graph
from paceline.records.record import Record
from paceline.records.spent import Cost, Energy
from paceline.report.words import numbers as show
from paceline.report.words.figures import capitalized
from paceline.report.words.formats import left_out_in_words
from paceline.report.words.held_back import bound_in_words, late_in_words
from paceline.spec.verdict import Verdict

Lines = list[tuple[str, str]]


def probe(record: Record) -> str | None:
    """How a user's task recombines, in one line."""
    return None if record.probe is None else Verdict.model_validate(record.probe).in_words


def time_notes(record: Record) -> Lines:
    """What is in no row of the table of times: the unexplained rest, and communication that cost nothing."""
    names = ("time.parts.other", "time.wall_s", "time.hidden_s")
    other, wall, hidden = (record.metric(name) for name in names)
    lines: Lines = []
    if other is not None and wall:
        lines.append(("unexplained", f"{show.number(other, 's')}, {show.unexplained(other / wall)} of the wall time"))
    if hidden:
        lines.append(("hidden communication", f"{show.number(hidden, 's')} while the rank computed; in no part"))
    return lines


def held_back(record: Record) -> list[str]:
    """One sentence for what the largest group of a training step is, one for each rank the others waited for."""
    largest = bound(record)
    sentences = [bound_in_words(largest.group, show.percent(largest.share))] if largest else []
    for rank in stragglers(record):
        last, step = show.percent(rank.last), show.number(rank.step_s, "s")
        sentences.append(late_in_words(rank.rank, rank.host, last=last, of=rank.of, step=step))
    return [f"{capitalized(sentence)}." for sentence in sentences]


def memory_notes(record: Record) -> Lines:
    """Data that no rank holds alone, the process and the machine as a whole, what a device keeps reserved, and why the allocator could
    not be asked."""
    used = record.memory
    if used is None:
        return []
    data = (used.sizes or {}).get("data")
    lines: Lines = []
    if data and used.data_shared:
        lines.append(("beside these", f"the data set, {show.number(data, 'bytes')}, once for all ranks of a machine"))
    if used.rss_bytes:
        steady = f", {show.number(used.rss_steady_bytes, 'bytes')} at the end" if used.rss_steady_bytes else ""
        lines.append(("process memory", f"{show.number(used.rss_bytes, 'bytes')} at most{steady}, torch included"))
    if used.machine_bytes:
        lines.append(
            ("machine memory", f"{show.number(used.machine_bytes, 'bytes')}, all ranks of a machine, shared pages once")
        )
    if used.reserved_bytes:
        lines.append(("device memory reserved", show.number(used.reserved_bytes, "bytes")))
    if used.why:
        lines.append(("memory by part", used.why if used.peak_bytes else f"not measured: {used.why}"))
    return lines


def ending(record: Record) -> Lines:
    """What ended the run before its planned length, and which of its evaluations was the best, where that was asked for."""
    lines: Lines = []
    if (stopped := record.stopped) is not None:
        steps, epochs, target = (record.spec.get(name) for name in ("steps", "epochs", "target"))
        where = f"after step {stopped.iteration}" + (f" of {steps}" if steps else "")
        where += f", in epoch {stopped.epoch + 1}" + (f" of {epochs}" if epochs else "")
        num = str(record.spec.get("stop_at")).partition(":")[2]
        why = f"no better score in {num} evaluations" if num else f"the target of {target} was reached"
        lines.append(("stopped", f"{where}: {why}"))
    if (best := record.best) is not None and best.value is not None:
        value = show.number(best.value, "fraction" if best.score == "accuracy" else "")
        lines.append(("best", f"test {best.score} {value}, after step {best.iteration}"))
    return lines


def facts(record: Record) -> Lines:
    """How it ended, speed, energy and money, and where everything lies; what was not measured says why."""
    rows = ending(record)
    if record.training_s is not None:
        rows.append(("training time", show.duration(record.training_s)))
    if record.time and "to_target_s" in record.time.plain:
        reached = record.time.to_target_s
        rows.append(("time to target", show.duration(reached) if reached is not None else "not reached"))
    if record.throughput:
        steady = record.steady is None or record.steady.steady
        warm = "" if steady else " (with warm-up: there was no step beyond it)"
        rows.append(("throughput", f"{show.number(record.throughput, 'samples/s')}{warm}"))
    rows += _graph(record.graph)
    num, of = left_out(record.applied)
    if num:
        rows.append(("fp16", left_out_in_words(num, of)))
    rows += _energy(record.energy) + _cost(record.cost)
    best = record.best.weights if record.best and record.best.weights != record.weights else None
    places = (("weights", record.weights), ("best weights", best), ("run directory", record.folder))
    return rows + [(name, place) for name, place in places if place]


def _graph(graph: Graph | None) -> Lines:
    """What was made into graphs, what that took, and what could not be held in them."""
    if graph is None:
        return []
    named = [(graph.graphs, "graph"), (graph.breaks, "break"), (graph.recompiles, "recompilation")]
    counts = ", ".join(f"{num} {word}{'' if num == 1 else 's'}" for num, word in named)
    eager = f"; {graph.eager_steps} steps without it" if graph.eager_steps else ""
    reasons = [*graph.break_reasons, *graph.recompile_reasons]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return [(f"graph of the {graph.of}", f"{show.number(graph.compile_s, 's')} to make: {counts}{why}{eager}")]


def _energy(energy: Energy | None) -> Lines:
    if energy is None:
        return []
    if energy.joules is None:
        return [("energy", f"not measured: {energy.why or 'no reason recorded'}")]
    each = f", {show.number(energy.joules_per_sample)} J a sample" if energy.joules_per_sample is not None else ""
    sources = f" ({', '.join(energy.sources)})" if energy.sources else ""
    return [("energy", f"{show.number(energy.joules)} J{each}{sources}")]


def _cost(cost: Cost | None) -> Lines:
    if cost is None or cost.total is None:
        return []
    return [("cost", f"{cost.total:.3g} ({cost.device_hours:.3g} device hours at {cost.price:g} an hour)")]
