"""The account counts every finished sample, and reports how many are missing."""

import pytest

from isochrone_wire.model import Account, Heartbeat


@pytest.mark.parametrize(
    ("account", "missing"),
    [
        (Account(finished=0, stored=0, spooled=0), 0),
        (Account(finished=10, stored=4, spooled=3, dropped={"spool_full": 2, "unknown_target": 1}), 0),
        (Account(finished=10, stored=4, spooled=3, dropped={"spool_full": 2}), 1),
        (Account(finished=10, stored=9, spooled=3), -2),
    ],
)
def test_what_is_nowhere_is_counted(account: Account, missing: int) -> None:
    """Lost samples give a positive number, samples counted twice a negative one."""
    assert account.missing == missing
    assert account.holds == (missing == 0)


def test_an_agent_accounts_for_quarantine() -> None:
    """A sample in quarantine is on disk, so it is neither lost nor dropped."""
    heartbeat = Heartbeat(finished=9, stored=3, spool_depth=2, quarantined=3, dropped={"spool_full": 1})
    assert heartbeat.account.holds
