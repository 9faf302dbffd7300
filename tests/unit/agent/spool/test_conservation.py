"""Whatever happens to a spool in whatever order, every sample is somewhere, once."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isochrone_agent.spool import inspection
from isochrone_agent.spool.database import SealedBatch
from isochrone_agent.spool.spool import Drain, Spool
from isochrone_wire.model import Outcome, Sample, Spend


class _Life:
    """A spool, the calls that are in flight, and what a collector has of it, by (epoch, seq)."""

    def __init__(self, path: Path, drain: Drain) -> None:
        self.path = path
        self.drain = drain
        self.spool = self._open()
        self.leased: list[SealedBatch] = []
        self.has: dict[tuple[int, int], SealedBatch] = {}
        self.recorded = 0
        self.chance = Random(1)

    def _open(self) -> Spool:
        return Spool(self.path, limit_bytes=120_000, drain=self.drain)

    def record(self) -> None:
        """Some samples."""
        for _ in range(self.chance.choice([1, 3, 60])):
            self.recorded += 1
            text = self.chance.randbytes(100).hex()
            self.spool.record(
                Sample(target_id=1, round_at=self.recorded, outcome=Outcome.OK, dispatched_at=1, error=text),
                [Spend(provider="p", day_at=0, requests=1)],
            )

    def lease(self) -> None:
        """A call begins."""
        batch = self.spool.lease(seal=self.chance.random() < 0.5)
        if batch is not None:
            self.leased.append(batch)

    def _any(self) -> SealedBatch | None:
        return self.leased.pop(self.chance.randrange(len(self.leased))) if self.leased else None

    def store(self) -> None:
        """A call is answered."""
        if (batch := self._any()) is not None:
            assert self.has.setdefault((batch.epoch, batch.seq), batch) == batch
            rejected = {"absurd_time": 1} if self.chance.random() < 0.2 else {}
            self.spool.acknowledge(batch, rejected=rejected)

    def store_unheard(self) -> None:
        """The collector commits, and the reply is lost."""
        if (batch := self._any()) is not None:
            assert self.has.setdefault((batch.epoch, batch.seq), batch) == batch
            self.spool.release(batch)

    def refuse(self) -> None:
        """The collector stores nothing of a batch, and says so."""
        if (batch := self._any()) is not None:
            if (batch.epoch, batch.seq) in self.has:
                self.spool.release(batch)
            else:
                self.spool.split(batch, "no")

    def reopen(self) -> None:
        """The agent is started again."""
        self.spool.close()
        self.leased.clear()
        self.spool = self._open()

    def retry_quarantine(self) -> None:
        """Somebody puts the quarantined back."""
        self.spool.retry_quarantine()


ACTS: list[Callable[[_Life], None]] = [
    _Life.record,
    _Life.record,
    _Life.lease,
    _Life.lease,
    _Life.store,
    _Life.store_unheard,
    _Life.refuse,
    _Life.reopen,
    _Life.retry_quarantine,
]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(ACTS), max_size=60), st.sampled_from(Drain))
def test_the_account_holds_at_every_instant(acts: list[Callable[[_Life], None]], drain: Drain) -> None:
    """Recording, sealing, storing, losing replies, refusing, dropping for room and reopening, in any order: finished =
    stored + spooled + dropped, no number is used for two different batches, and the file is in order.
    """
    with tempfile.TemporaryDirectory() as folder:
        life = _Life(Path(folder, "spool.sqlite3"), drain)
        for act in acts:
            act(life)
            account = life.spool.account()
            assert account.holds, account
            assert account.finished == life.recorded
        life.spool.close()
        assert inspection.verify_spool(life.path) == []
