"""Replay of a recorded transcript through the pure core, as the prober does, in arbitrary reads."""

import re
from collections.abc import Iterable

from isochrone_agent.probe.dialects import DIALECTS
from isochrone_agent.probe.dialects.signals import Failed, Opened, Sent
from isochrone_agent.probe.measurement import IllegalSignal, Measurement
from isochrone_common.sse import SseDecoder, SseOverflow
from isochrone_wire.model import Outcome, Price, Sample

MS = 1_000_000
PRICE = Price(usd_per_m_input=1.0, usd_per_m_output=10.0)


def replay(dialect: str, reads: Iterable[tuple[int, bytes]]) -> Sample:
    """Return the sample of a stream whose reads arrived at these milliseconds after the request was sent at 0."""
    measurement, decoder = Measurement(), SseDecoder()
    measurement.observe(Sent(), 0)
    measurement.observe(Opened(status=200), 0)
    at_ns = 0
    try:
        for at_ms, data in reads:
            at_ns = at_ms * MS
            for event in decoder.receive(data):
                for signal in DIALECTS[dialect].interpret(event):
                    measurement.observe(signal, at_ns)
    except (IllegalSignal, SseOverflow, ValueError) as error:
        measurement.observe(Failed(outcome=Outcome.GARBLED, error=str(error)), at_ns)
    return measurement.sample(target_id=1, round_at=0, dispatched_at=0, price=PRICE)


def arrivals(transcript: bytes, every_ms: int) -> list[tuple[int, bytes]]:
    """Return one read of everything, 100 ms after the request, or one read per event, `every_ms` milliseconds apart."""
    if not every_ms:
        return [(100, transcript)]
    events = re.findall(rb".+?(?:\r\n\r\n|\n\n)", transcript, re.DOTALL)
    return [(100 + every_ms * number, event) for number, event in enumerate(events)]


def whole(dialect: str, transcript: bytes) -> Sample:
    """Return the sample of a transcript that arrives in one read, 100 ms after the request."""
    return replay(dialect, [(100, transcript)])
