"""The reference of punctuality: a plain asyncio program that sleeps until each instant of a schedule, and does nothing.

usage: python -m bench.reference_timer SECONDS PER_SECOND prints the delay of each instant in milliseconds, as JSON
"""

import asyncio
import json
import sys
import time


async def _sleep(instant: float) -> float:
    """Sleep until an instant of the system clock; return the delay in milliseconds."""
    await asyncio.sleep(max(0.0, instant - time.time()))
    return 1000 * (time.time() - instant)


async def delays(seconds: int, per_second: int) -> list[float]:
    """Return the delays of all instants, in order. Processes started in the same second have the same instants."""
    begin = int(time.time()) + 2
    instants = [begin + number / per_second for number in range(seconds * per_second)]
    return list(await asyncio.gather(*map(_sleep, instants)))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(delays(int(sys.argv[1]), int(sys.argv[2])))))  # noqa: T201  # the result
