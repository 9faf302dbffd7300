"""Checks of the agent's doctor that need no collector."""

from dataclasses import replace
from pathlib import Path

import pytest

from isochrone_agent.cli import health_checks
from isochrone_agent.settings import load_settings
from isochrone_agent.spool.spool import Spool
from isochrone_common import identity_file
from isochrone_common.address import Address
from isochrone_common.cli.health_check import CheckResult, Verdict, fail, ok, warn, worst
from isochrone_common.credentials import Credential
from isochrone_common.identity_file import Identity
from isochrone_wire.model import Plan, Target
from isochrone_wire.operations import Role

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
    found = await health_checks.check_names(SETTINGS, Plan(version=1, baseline="us-east-2", targets=(TARGET, nowhere)))
    assert found.verdict is Verdict.FAIL
    assert found.sentence.startswith("p/nowhere: the base URL")
    assert words in found.sentence
    assert (
        await health_checks.check_names(SETTINGS, Plan(version=1, baseline="us-east-2", targets=(TARGET,)))
    ).sentence == "127.0.0.1"


def test_targets_without_a_key_are_a_failure_with_a_hint() -> None:
    """The hint says what becomes of them until they have one; a plan may also need no key."""
    keyed = replace(TARGET, credential="nowhere-defined")
    plan = Plan(version=1, baseline="us-east-2", targets=(keyed, TARGET))
    found = health_checks.check_keys(SETTINGS, plan)
    assert (found.verdict, found.sentence.startswith("p/m needs the credential")) == (Verdict.FAIL, True)
    assert found.hint.startswith("write a [nowhere-defined] table")
    assert found.hint.endswith("; until then these targets are skipped_not_ready")
    without = health_checks.check_keys(SETTINGS, replace(plan, targets=(TARGET,)))
    assert (without.verdict, without.sentence) == (Verdict.OK, "no target needs a key")


def test_the_first_problems_of_a_spool_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three problems of a damaged spool are in the sentence, and the hint names the command that lists all."""
    monkeypatch.setattr(health_checks, "verify_spool", lambda _path: ["a", "b", "c", "d"])
    Spool(tmp_path / "spool.sqlite3").close()
    found = health_checks._check_samples(tmp_path / "spool.sqlite3")
    assert (found.verdict, found.sentence) == (Verdict.FAIL, "a; b; c")
    assert "`isochrone-agent spool verify` lists all problems" in found.hint


GIB = 1 << 30
OURS, THEIRS = bytes(32), bytes([1] * 32)


@pytest.mark.parametrize(("gib", "verdict"), [(9.0, "ok"), (0.4, "warn"), (0.05, "fail")])
def test_a_spool_needs_room(gib: float, verdict: str) -> None:
    """Less than 512 MiB free is a warning, less than 64 MiB a failure."""
    assert health_checks.judge_disk(int(gib * GIB), where="/data").verdict == verdict


@pytest.mark.parametrize(("mode", "verdict"), [(0o600, "ok"), (0o400, "ok"), (0o640, "fail"), (0o604, "fail")])
def test_an_identity_is_a_secret(tmp_path: Path, mode: int, verdict: str) -> None:
    """A process that can read the identity file, of the same group or any, can push as this vantage."""
    key = str(Credential(id=1, secret=bytes(32)))
    joined = Identity(address=Address("::1", 4600), name="us-1", role=Role.VANTAGE, region="us", credential=key)
    settings = replace(SETTINGS, data_dir=tmp_path, identity=joined)
    identity_file.write(settings.identity_path, joined)
    settings.identity_path.chmod(mode)
    assert health_checks.check_identity(settings).verdict == verdict


@pytest.mark.parametrize(
    ("now_at", "verdict", "said"),
    [(5, "ok", "0 more days"), (7, "ok", "0 more days"), (8, "warn", "0 more days"), (9, "fail", "has expired")],
)
def test_a_credential_that_was_not_renewed_is_reported(now_at: int, verdict: str, said: str) -> None:
    """A warning from the middle of the time for the renewal, and a failure after the end."""
    found = health_checks.judge_lifetime("a", 7, 9, now_at=now_at)
    assert (found.verdict, said in found.sentence) == (verdict, True)
    assert health_checks.judge_lifetime("a", None, None, now_at=now_at).verdict == "ok"


@pytest.mark.parametrize(
    ("presented", "pinned", "verdict", "said"),
    [
        (OURS, [OURS], "ok", "as pinned by this agent"),
        (OURS, [OURS, THEIRS], "ok", "next SHA256:01"),
        (OURS, [], "ok", "verified by certificate authorities"),
        (THEIRS, [OURS], "fail", "the collector presents SHA256:01"),
    ],
)
def test_another_certificate_is_a_failure(presented: bytes, pinned: list[bytes], verdict: str, said: str) -> None:
    """The sentence shows the certificate presented beside the one pinned."""
    found = health_checks.judge_certificate(presented, pinned)
    assert found.verdict == verdict
    assert said in found.sentence


@pytest.mark.parametrize(
    ("synchronised", "error_ms", "verdict"),
    [(False, 1, "warn"), (True, 12, "ok"), (True, 100, "ok"), (True, 101, "warn")],
)
def test_the_clock_is_synchronised(synchronised: bool, error_ms: int, verdict: str) -> None:
    """A clock that is not synchronised, or may be more than 0.1 s off, is a warning; it never stops an agent."""
    kernel = health_checks.KernelClock(synchronised=synchronised, max_error_us=error_ms * 1000)
    assert health_checks.judge_clock(kernel).verdict == verdict
    assert health_checks.judge_clock(None).verdict == "warn"


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([], "ok"),
        ([ok("a", "b")], "ok"),
        ([warn("a", "b", "c"), ok("a", "b")], "warn"),
        ([fail("a", "b", "c")], "fail"),
    ],
)
def test_the_worst_verdict_decides(results: list[CheckResult], verdict: str) -> None:
    """One failed check makes the whole result a failure."""
    assert worst(results) == verdict
