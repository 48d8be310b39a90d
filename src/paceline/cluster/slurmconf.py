"""The slurm.conf of a box, rendered from its description. Pure text: it writes nothing and asks nobody."""

from __future__ import annotations

from paceline.cluster.box import FOLDER, HEAD, HEAD_ADDRESS, MUNGE_SOCKET, Box

# Each line for a reason; whatever is not here is as Slurm ships it. There is no accounting: `sacct` has nothing to say.
_TEMPLATE = """\
# Written by `paceline cluster up`; gone after `paceline cluster down`.
ClusterName=paceline
SlurmctldHost={head}({head_address})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={socket}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
# srun --mpi=pmix makes folders named after the job here: two machines on one disk would trip over each other.
TmpFS={folder}/tmp-%n
# Neither needs a cgroup, which a container may not have; cores are limited by the affinity that slurmd hands down.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
# The machines are what is written below, not what slurmd finds on the real one.
SlurmdParameters=config_overrides
MpiDefault=none
# Nobody gets mail; without this line slurmctld complains that there is no mail program.
MailProg=/bin/true
# Short timers: a lost machine is noticed while one watches.
MessageTimeout=5
SlurmdTimeout=20
KillWait=3
InactiveLimit=0
# A finished job can be asked about for this long; without accounting there is no other place.
MinJobAge=600
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
# A job in `main` ends one in `low`, so that preemption can be tried.
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
DefMemPerCPU={memory_per_cpu_mb}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
PartitionName=low Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
"""


def render(box: Box) -> str:
    memory_mb = box.machine_memory_mb
    nodes = [
        f"NodeName={machine.name} NodeAddr={machine.address} CPUs={box.cores} RealMemory={memory_mb} State=UNKNOWN"
        for machine in box.members
    ]
    return _TEMPLATE.format(
        head=HEAD,
        head_address=HEAD_ADDRESS,
        socket=MUNGE_SOCKET,
        folder=FOLDER,
        # Half of a core's part: two jobs that ask for no memory fit on every core at once.
        memory_per_cpu_mb=max(1, memory_mb // box.cores // 2),
        nodes="\n".join(nodes),
    )
