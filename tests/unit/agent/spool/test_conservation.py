"""Conservation: after any sequence of operations, the account of the spool holds."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isochrone_agent.settings import Drain
from isochrone_agent.spool import inspection
from isochrone_agent.spool.database import SealedBatch
from isochrone_agent.spool.spool import Spool
from isochrone_wire.model import Outcome, Sample, Spend


class _Scenario:
    """A spool, its leased batches, and the batches that a collector has stored, by (epoch, seq)."""

    def __init__(self, path: Path, drain: Drain) -> None:
        self.path = path
        self.drain = drain
        self.spool = self._open()
        self.leased: list[SealedBatch] = []
        self.stored: dict[tuple[int, int], SealedBatch] = {}
        self.recorded = 0
        self.random = Random(1)

    def _open(self) -> Spool:
        return Spool(self.path, limit_bytes=120_000, drain=self.drain)

    def record(self) -> None:
        """Record some samples."""
        for _ in range(self.random.choice([1, 3, 60])):
            self.recorded += 1
            text = self.random.randbytes(100).hex()
            self.spool.record(
                Sample(target_id=1, round_at=self.recorded, outcome=Outcome.OK, dispatched_at=1, error=text),
                [Spend(provider="p", day_at=0, requests=1)],
            )

    def lease(self) -> None:
        """Start a call."""
        batch = self.spool.lease(seal=self.random.random() < 0.5)
        if batch is not None:
            self.leased.append(batch)

    def _pop_leased(self) -> SealedBatch | None:
        return self.leased.pop(self.random.randrange(len(self.leased))) if self.leased else None

    def store(self) -> None:
        """The collector commits a batch and replies."""
        if (batch := self._pop_leased()) is not None:
            assert self.stored.setdefault((batch.epoch, batch.seq), batch) == batch
            rejected = {"absurd_time": 1} if self.random.random() < 0.2 else {}
            self.spool.acknowledge(batch, rejected=rejected)

    def lose_reply(self) -> None:
        """The collector commits a batch, and the reply is lost."""
        if (batch := self._pop_leased()) is not None:
            assert self.stored.setdefault((batch.epoch, batch.seq), batch) == batch
            self.spool.release(batch)

    def refuse(self) -> None:
        """The collector refuses a batch."""
        if (batch := self._pop_leased()) is not None:
            if (batch.epoch, batch.seq) in self.stored:
                self.spool.release(batch)
            else:
                self.spool.split(batch, "no")

    def reopen(self) -> None:
        """The agent restarts."""
        self.spool.close()
        self.leased.clear()
        self.spool = self._open()

    def retry_quarantine(self) -> None:
        """An operator retries the quarantine."""
        self.spool.retry_quarantine()


STEPS: list[Callable[[_Scenario], None]] = [
    _Scenario.record,
    _Scenario.record,
    _Scenario.lease,
    _Scenario.lease,
    _Scenario.store,
    _Scenario.lose_reply,
    _Scenario.refuse,
    _Scenario.reopen,
    _Scenario.retry_quarantine,
]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.sampled_from(Drain))
def test_the_account_holds_at_every_instant(steps: list[Callable[[_Scenario], None]], drain: Drain) -> None:
    """Recording, sealing, storing, losing replies, refusing, dropping for room and reopening, in any order: finished =
    stored + spooled + dropped, no number is used for two different batches, and verification finds no problem.
    """
    with tempfile.TemporaryDirectory() as folder:
        scenario = _Scenario(Path(folder, "spool.sqlite3"), drain)
        for step in steps:
            step(scenario)
            account = scenario.spool.stats().account
            assert account.holds, account
            assert account.finished == scenario.recorded
        scenario.spool.close()
        assert inspection.verify_spool(scenario.path) == []
