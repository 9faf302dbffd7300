"""Checks of the agent's doctor that need no collector."""

from dataclasses import replace

import pytest

from isochrone_agent.cli.doctor import _names
from isochrone_agent.settings import load_settings
from isochrone_common.cli.health_check import Verdict
from isochrone_wire.model import Plan, Target

SETTINGS = load_settings(None, {"vantage": "us-1", "region": "us-east-2", "collector": "127.0.0.1:1"})
TARGET = Target(id=7, name="p/m", provider="p", model="m", base_url="http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("http://127.0.0.1:99999/v1", "Port out of range"),
        ("http://127.0.0.1:http/v1", "Port could not be cast"),
        ("http://[::1/v1", "Invalid IPv6"),
        ("http:///v1", "has no host"),
        ("gopher://127.0.0.1/v1", "does not begin with http"),
    ],
)
async def test_an_invalid_base_url_is_a_failed_check(base_url: str, words: str) -> None:
    """The result names the target and the fault; the hosts of the other targets are still resolved."""
    nowhere = replace(TARGET, name="p/nowhere", base_url=base_url)
    found = await _names(SETTINGS, Plan(version=1, baseline="us-east-2", targets=(TARGET, nowhere)))
    assert found.verdict is Verdict.FAIL
    assert found.sentence.startswith("p/nowhere: the base URL")
    assert words in found.sentence
    assert (await _names(SETTINGS, Plan(version=1, baseline="us-east-2", targets=(TARGET,)))).sentence == "127.0.0.1"
