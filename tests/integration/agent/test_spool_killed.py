"""`kill -9` of a process that writes a spool, at random instants: nothing that was committed is lost or changed."""

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from isochrone_agent import inspection
from isochrone_agent.spool import Spool

KILLS = 12
# Records, seals, stores and splits as fast as it can, and tells what was committed, in the order it was.
WRITER = """
import sys
from pathlib import Path
from isochrone_agent.spool import Spool
from isochrone_wire.model import Outcome, Sample
spool = Spool(Path(sys.argv[1]))
number = int(sys.argv[2])
def tell(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
while True:
    number += 1
    spool.record(Sample(target_id=1, round_at=number, outcome=Outcome.OK, dispatched_at=number))
    tell("kept", number)
    if number % 7 == 0:
        batch = spool.lease()
        if number % 3 == 0:
            spool.split(batch, "no")
        else:
            tell("storing", batch.samples)
            spool.acknowledge(batch)
            tell("stored", batch.samples)
"""


def test_what_was_committed_is_there(tmp_path: Path) -> None:
    """After every kill the spool opens without salvage, the account holds, and it knows every sample it promised to
    keep: at most the one being written when the kill came is more than was told.
    """
    path = tmp_path / "spool.sqlite3"
    chance = Random(7)
    told_kept = told_stored = told_storing = 0
    for _ in range(KILLS):
        words = _until_killed(path, told_kept, chance.uniform(0.02, 0.2))
        told_kept = max([told_kept, *(int(word[1]) for word in words if word[0] == "kept")])
        told_stored += sum(int(word[1]) for word in words if word[0] == "stored")
        told_storing += sum(int(word[1]) for word in words if word[0] == "storing")
        assert inspection.verify_spool(path) == []
        spool = Spool(path)
        account = spool.account()
        spool.close()
        assert account.holds
        assert told_kept <= account.finished <= told_kept + KILLS
        assert told_stored <= account.stored <= told_storing
    assert told_kept > KILLS
    assert not list(tmp_path.glob("*damaged*"))


def _until_killed(path: Path, number: int, seconds: float) -> list[list[str]]:
    command = [sys.executable, "-c", WRITER, str(path), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        # A line that was cut off says nothing.
        lines = [first, *writer.stdout.read().split("\n")[:-1]]
    return [line.split() for line in lines if len(line.split()) == 2]
