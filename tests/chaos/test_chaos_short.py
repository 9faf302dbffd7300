"""A short `make chaos`: every kind of fault once, with real processes."""

from pathlib import Path

import pytest

from chaos import disk, experiment
from chaos.faults import Fault, Kind
from chaos.oracle import judge_all

AGENTS = 2


def script(without: set[Kind]) -> list[Fault]:
    kinds = [kind for kind in Kind if kind not in without]
    return [
        Fault(number=number, kind=kind, after_s=0.7, agent=number % AGENTS, seed=number)
        for number, kind in enumerate(kinds, 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_whatever_dies_every_recorded_sample_arrives_once(tmp_path: Path, *, tls: bool) -> None:
    """No recorded sample is lost, duplicated or invented if agents, collector, PostgreSQL or the network fail."""
    own_disks = disk.unavailable_reason() is None
    faults = script(set() if own_disks else {Kind.DISK_FULL})
    outcome = await experiment.run(tmp_path, faults, agents=AGENTS, own_disks=own_disks, tls=tls, echo=print)
    verdict = judge_all(outcome.evidence)
    assert verdict.conserved, (verdict, outcome.unexpected_exits)
    assert verdict.spooled == 0
    assert len(outcome.events) == len(faults)
