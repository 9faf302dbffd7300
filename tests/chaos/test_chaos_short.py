"""A short `make chaos`: every kind of fault once, over real processes."""

from pathlib import Path

import pytest

from chaos import disk, trial
from chaos.faults import Fault, Kind
from chaos.oracle import judge_all

AGENTS = 2


def script(without: set[Kind]) -> list[Fault]:
    kinds = [kind for kind in Kind if kind not in without]
    return [
        Fault(number=number, kind=kind, after_s=0.7, agent=number % AGENTS, dice=number)
        for number, kind in enumerate(kinds, 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_whatever_dies_every_recorded_sample_arrives_once(tmp_path: Path, *, tls: bool) -> None:
    """Nothing recorded is lost, duplicated or invented, whatever of agents, collector, PostgreSQL and wire fails."""
    own_disks = disk.why_not() is None
    faults = script(set() if own_disks else {Kind.DISK_FULL})
    outcome = await trial.run(tmp_path, faults, agents=AGENTS, own_disks=own_disks, tls=tls, tell=print)
    finding = judge_all(outcome.evidence)
    assert finding.conserved, (finding, outcome.falls)
    assert finding.spooled == 0
    assert len(outcome.events) == len(faults)
