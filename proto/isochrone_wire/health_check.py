"""What a doctor finds, the same on both sides: a check, a verdict on it, a sentence, and what would help. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Fine, works but less well or not for long, or to be mended; from the least grave to the gravest."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing looked at. `hint` says what would help where something is the matter."""

    check: str
    verdict: Verdict
    sentence: str
    hint: str = ""


def ok(check: str, sentence: str) -> CheckResult:
    """Nothing is the matter."""
    return CheckResult(check=check, verdict=Verdict.OK, sentence=sentence)


def warn(check: str, sentence: str, hint: str) -> CheckResult:
    """Something works, and could work better, or will be the matter."""
    return CheckResult(check=check, verdict=Verdict.WARN, sentence=sentence, hint=hint)


def fail(check: str, sentence: str, hint: str) -> CheckResult:
    """Something is the matter."""
    return CheckResult(check=check, verdict=Verdict.FAIL, sentence=sentence, hint=hint)


def worst(results: Iterable[CheckResult]) -> Verdict:
    """The gravest verdict of all."""
    return max((result.verdict for result in results), key=list(Verdict).index, default=Verdict.OK)
