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
class Finding:
    """One thing looked at. `hint` says what would help where something is the matter."""

    check: str
    verdict: Verdict
    sentence: str
    hint: str = ""


def ok(check: str, sentence: str) -> Finding:
    """Nothing is the matter."""
    return Finding(check=check, verdict=Verdict.OK, sentence=sentence)


def warn(check: str, sentence: str, hint: str) -> Finding:
    """Something works, and could work better, or will be the matter."""
    return Finding(check=check, verdict=Verdict.WARN, sentence=sentence, hint=hint)


def fail(check: str, sentence: str, hint: str) -> Finding:
    """Something is the matter."""
    return Finding(check=check, verdict=Verdict.FAIL, sentence=sentence, hint=hint)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The gravest verdict of all."""
    return max((finding.verdict for finding in findings), key=list(Verdict).index, default=Verdict.OK)
