"""The words of `paceline cluster`: up, down, status, cut, mend, on."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer

from paceline.cli.door import Json, console, print_json, say, say_all

HELP = (
    "A real Slurm cluster of several machines on this one: sbatch, srun and MPI as on a big one.\n\n"
    "Each machine is a Linux network namespace with its own address, name, cores and link, under a slurmctld and slurmds of "
    "its own. The disk is shared. It needs root, and touches no Slurm that is installed here. "
    "Everything lies in /run/paceline/cluster and is gone after `paceline cluster down`.\n\n"
    "Try: paceline cluster up --machines 2 --cores 1   then   paceline cluster status"
)
Machine = Annotated[str, typer.Argument(metavar="NODE", help="node0, node1, ...")]


def _step(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more: no reason to stop half-way
        print(text, file=sys.stderr, flush=True)


def up(
    machines: Annotated[int, typer.Option("--machines", help="How many machines, 1 to 16.")] = 2,
    cores: Annotated[int, typer.Option("--cores", help="Cores of each; bound to real ones in turn.")] = 1,
    link: Annotated[
        str | None,
        typer.Option(
            "--link", metavar="SPEED", help="Speed of each link, each way: 100mbit, 1gbit. No limit otherwise."
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="TIME", help="Time a packet takes from machine to machine: 5ms. Needs netem."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start the cluster and wait until Slurm takes jobs; asked again for the same one, say that it is up."""
    from paceline.commands import cluster

    seen = cluster.up(num_machines=machines, cores=cores, link=link, delay=delay, say=_step)
    if as_json:
        print_json(seen)
        return
    say(f"the cluster is up, after {seen['took_s']:.1f} s" if seen["started"] else "the cluster is up already")
    _show(seen)
    say_all(
        [
            "\nnext:",
            f"  paceline run mnist-convnet on={machines}x{cores} launcher=slurm+torchrun epochs=1",
            "  paceline cluster on node0 -- ip address",
            "  paceline cluster cut node1",
            "  paceline cluster down",
        ]
    )


def down() -> None:
    """End every job and daemon and take away machines, network and files; asked again, do nothing."""
    from paceline.commands import cluster

    say("the cluster is down; nothing of it is left" if cluster.down() else "no cluster was up; nothing to do")


def status(as_json: Json = False) -> None:
    """The machines as Slurm and the network see them, and the jobs."""
    from paceline.commands import cluster

    seen = cluster.look()
    if as_json:
        print_json(seen)
    else:
        _show(seen)


def _show(seen: dict[str, Any]) -> None:
    from paceline.commands import cluster, show

    if seen["machines"]:
        show.table(console(), seen["shape"], *cluster.shown(seen))
    if seen["jobs"]:
        show.table(console(), "jobs", *cluster.shown_jobs(seen))
    say_all(cluster.remarks(seen))


def cut(node: Machine) -> None:
    """Pull a machine's cable: what it is sent is lost without a word. Slurm calls it down after about 30 seconds."""
    from paceline.commands import cluster

    cluster.cut(node)
    say(f"{node} is cut off; put the cable back with: paceline cluster mend {node}")


def mend(node: Machine) -> None:
    """Put a machine's cable back."""
    from paceline.commands import cluster

    cluster.mend(node)
    say(f"{node} is connected again")


def on(
    node: Machine,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run, with its arguments.")],
) -> None:
    """Run a command on a machine, with this terminal and in this folder: paceline cluster on node0 -- bash"""
    from paceline.commands import cluster

    cluster.on(node, command[1:] if command[0] == "--" else command)
