"""Faults of the collectors."""

import asyncio
import signal
from random import Random

from chaos.collectors import Collector
from chaos.faults import Fault
from chaos.testbed import Testbed

# Collectors whose clocks are half a minute and more apart disagree on what happened just now.
CLOCKS_S = (-60.0, 0.0, 60.0)
READY_SECONDS = 10.0
# One that has just started may not handle the signal yet.
EXITS = (0, -signal.SIGTERM)


async def kill_one(testbed: Testbed, fault: Fault) -> str:
    """Kill a collector and start it again."""
    return await _kill(testbed, Random(fault.seed).randrange(len(testbed.collectors)))


async def kill_leader(testbed: Testbed, fault: Fault) -> str:
    """Kill the collector that leads, if one does, and start it again."""
    leading = [number for number, collector in enumerate(testbed.collectors) if collector.leads]
    return await _kill(testbed, leading[0]) if leading else "none leads"


async def freeze_one(testbed: Testbed, fault: Fault) -> str:
    """Stop a collector, which then neither answers nor closes connections."""
    rng = Random(fault.seed)
    seconds, number = rng.uniform(0.5, 2.0), rng.randrange(len(testbed.collectors))
    program = testbed.collectors[number].program
    async with program.lock:
        program.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        program.signal(signal.SIGCONT)
    return f"collector {number + 1}, {seconds:.1f} s"


async def restart_all(testbed: Testbed, fault: Fault) -> str:
    """Stop each collector properly in turn, and start it again."""
    for collector in testbed.collectors:
        async with collector.program.lock:
            if (code := await collector.program.stop()) not in EXITS:
                collector.program.unexpected_exit_codes.append(code)
            collector.program.start()
            ready = await _is_ready(collector)
        if not ready:
            return "one did not become ready"
    return ""


async def step_clock(testbed: Testbed, fault: Fault) -> str:
    """Set the clock of a collector a minute off, or right, but never to its present value."""
    rng = Random(fault.seed)
    number = rng.randrange(len(testbed.collectors))
    collector = testbed.collectors[number]
    ahead_s = rng.choice([seconds for seconds in CLOCKS_S if seconds != collector.ahead_s])
    collector.set_clock(ahead_s)
    return f"collector {number + 1}, {ahead_s:+.0f} s"


async def _kill(testbed: Testbed, number: int) -> str:
    program = testbed.collectors[number].program
    async with program.lock:
        program.kill()
        program.start()
    return f"collector {number + 1}"


async def _is_ready(collector: Collector) -> bool:
    """Wait until it serves; return false if that takes too long, for instance without a database."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await collector.program.ready_line()
    except (TimeoutError, RuntimeError):
        return False
    return True
