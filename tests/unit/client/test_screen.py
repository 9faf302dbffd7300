"""Requests to stop: each signal is one, none other is, and they stay known after the block."""

import signal

import click
import pytest

from isochrone_client.screen import StopRequests


def test_each_signal_is_a_request() -> None:
    """Two Ctrl-C are two, and end the program without results even if they are seen only after the block."""
    with StopRequests() as stop:
        assert stop.count == 0
        signal.raise_signal(signal.SIGINT)
        assert stop.wanted
        stop.check(results=True)
        signal.raise_signal(signal.SIGINT)
    assert stop.count == 2
    with pytest.raises(click.exceptions.Exit) as ended:
        stop.check(results=True)
    assert ended.value.exit_code == 128 + signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGTSTP])
def test_other_signals_are_none(number: signal.Signals) -> None:
    """A change of the size and a suspension only end the wait."""
    before = signal.signal(number, lambda *_: None)
    try:
        with StopRequests() as stop:
            signal.raise_signal(number)
            stop.sleep(60)
            assert not stop.wanted
    finally:
        signal.signal(number, before)
    stop.check()
