"""Results of health checks, shared by the `doctor` commands of agent and collector. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The severity of a result, in ascending order: fine, degraded or at risk, broken."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check. `hint` is the remedy; it is empty if the verdict is `OK`."""

    check: str
    verdict: Verdict
    sentence: str
    hint: str = ""


def ok(check: str, sentence: str) -> CheckResult:
    """Return a result without a problem."""
    return CheckResult(check=check, verdict=Verdict.OK, sentence=sentence)


def warn(check: str, sentence: str, hint: str) -> CheckResult:
    """Return a result that is degraded, or will become a problem."""
    return CheckResult(check=check, verdict=Verdict.WARN, sentence=sentence, hint=hint)


def fail(check: str, sentence: str, hint: str) -> CheckResult:
    """Return a result with a problem that must be fixed."""
    return CheckResult(check=check, verdict=Verdict.FAIL, sentence=sentence, hint=hint)


def worst(results: Iterable[CheckResult]) -> Verdict:
    """Return the most severe verdict; `OK` without results."""
    return max((result.verdict for result in results), key=list(Verdict).index, default=Verdict.OK)
