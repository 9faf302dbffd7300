"""A short `make chaos`: every kind of fault once, with real processes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from chaos import disk, experiment
from chaos.faults import FAULT_TYPES, Fault
from chaos.oracle import judge_all
from chaos.testbed import Scale

AGENTS = 2
# Without TLS, another measure recognises a push and its reply.
PLAIN = ["collector-killed", "reply-cut"]


@pytest.mark.slow
@pytest.mark.parametrize(("tls", "kinds"), [(False, PLAIN), (True, list(FAULT_TYPES))], ids=["plain", "tls"])
async def test_whatever_dies_every_recorded_sample_arrives_once(*, tls: bool, kinds: list[str]) -> None:
    """No recorded sample is lost, duplicated or invented if agents, collectors, PostgreSQL or the network fail."""
    own_disks = disk.unavailable_reason() is None
    faults = [
        Fault(number=number, kind=kind, after_s=0.7, agent=number % AGENTS, seed=number)
        for number, kind in enumerate(kinds, 1)
        if own_disks or not FAULT_TYPES[kind].needs_disk
    ]
    scale = Scale(agents=AGENTS, collectors=2, own_disks=own_disks, tls=tls)
    # The path of a worker's `tmp_path` is too long for a Unix socket.
    with TemporaryDirectory(prefix="isochrone-chaos-") as folder:
        outcome = await experiment.run(Path(folder), faults, scale, measure=False, echo=print)
    verdict = judge_all(outcome.evidence)
    assert verdict.conserved, (verdict, outcome.unexpected_exits)
    assert verdict.spooled == 0
    assert len(outcome.events) == len(faults)
