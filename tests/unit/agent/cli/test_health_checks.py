"""The agent's doctor: what is fine, what works less well, what is to be mended."""

import pytest

from isochrone_agent.cli import health_checks
from isochrone_wire.health_check import CheckResult, Verdict, fail, ok, warn, worst

GIB = 1 << 30
OURS, THEIRS = bytes(32), bytes([1] * 32)


@pytest.mark.parametrize(("gib", "verdict"), [(9.0, "ok"), (0.4, "warn"), (0.05, "fail")])
def test_a_spool_needs_room(gib: float, verdict: str) -> None:
    """Below 512 MiB a disk is worth a look, below 64 MiB samples are about to be dropped."""
    assert health_checks.judge_disk(int(gib * GIB), where="/data").verdict == verdict


def test_what_cannot_be_read_is_told() -> None:
    """The first few of a damaged spool's problems are named; a sound one tells what waits."""
    assert health_checks.judge_spool([], waiting=7).sentence == "7 wait, and all that is kept can be read"
    found = health_checks.judge_spool(["a", "b", "c", "d"], waiting=7)
    assert (found.verdict, found.sentence) == (Verdict.FAIL, "a; b; c")


@pytest.mark.parametrize(("mode", "verdict"), [(0o600, "ok"), (0o400, "ok"), (0o640, "fail"), (0o604, "fail")])
def test_an_identity_is_a_secret(mode: int, verdict: str) -> None:
    """Whoever can read the identity can push in this vantage's name."""
    assert health_checks.judge_identity_file(mode, where="/data/identity.json").verdict == verdict


@pytest.mark.parametrize(
    ("presented", "pinned", "verdict", "said"),
    [
        (OURS, OURS, "ok", "as when this agent joined"),
        (OURS, None, "ok", "the system's authorities"),
        (THEIRS, OURS, "fail", "the collector shows SHA256:01"),
    ],
)
def test_another_certificate_is_told(presented: bytes, pinned: bytes | None, verdict: str, said: str) -> None:
    """A certificate that is not the one pinned is named beside the one that is."""
    found = health_checks.judge_certificate(presented, pinned)
    assert found.verdict == verdict
    assert said in found.sentence


@pytest.mark.parametrize(
    ("synchronised", "error_ms", "verdict"),
    [(None, 0, "warn"), (False, 1, "warn"), (True, 12, "ok"), (True, 100, "ok"), (True, 101, "warn")],
)
def test_somebody_keeps_the_clock(synchronised: bool | None, error_ms: int, verdict: str) -> None:
    """A clock that nobody keeps, or that may be a tenth of a second off, is worth a look; it never stops an agent."""
    assert health_checks.judge_clock(synchronised, max_error_us=error_ms * 1000).verdict == verdict


def test_what_is_missing_is_named() -> None:
    """Targets without their key and hosts without an address are named with the reason."""
    keys = health_checks.judge_keys({"b/x": "not set", "a/y": "unknown here"}, ["b"])
    assert (keys.verdict, keys.sentence) == (Verdict.FAIL, "a/y: unknown here; b/x: not set")
    names = health_checks.judge_names({"api.example": "Name or service not known"}, [])
    assert (names.verdict, names.sentence) == (Verdict.FAIL, "api.example: Name or service not known")


def test_what_is_there_is_named_once() -> None:
    """Credentials and hosts that are there are named, each once, and none is fine where none is needed."""
    assert health_checks.judge_keys({}, ["b", "a", "b"]).sentence == "a, b"
    assert health_checks.judge_keys({}, []).sentence == "no target needs one"
    assert health_checks.judge_names({}, ["b.example", "a.example"]).sentence == "a.example, b.example"


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([], "ok"),
        ([ok("a", "b")], "ok"),
        ([warn("a", "b", "c"), ok("a", "b")], "warn"),
        ([fail("a", "b", "c")], "fail"),
    ],
)
def test_the_gravest_decides(results: list[CheckResult], verdict: str) -> None:
    """One failure is a failure, whatever else is well."""
    assert worst(results) == verdict
