from dataclasses import replace

from isochrone_client.errors import InsufficientError
from isochrone_client.formats import UNKNOWN, moment
from isochrone_client.render.page import Column, Page, answer_page
from isochrone_wire.queries.status import Finding, Severity, StatusList, Verdict

EXIT_CODES = {Verdict.WARNING: 5, Verdict.CRITICAL: 6}
"""The exit codes of verdicts other than 0."""


def page(answer: StatusList, *, now_at: int) -> Page[Finding]:
    """The page of what is wrong now, the worst first."""
    sentence = f"{answer.verdict.phrase}: {answer.summary}"
    columns: tuple[Column[Finding], ...] = (
        Column("severity", lambda row: row.severity.value, wide=True, style=_style),
        Column("since", lambda row: moment(row.since_at, now_at=now_at) if row.since_at else UNKNOWN, unit="UTC"),
        Column("finding", lambda row: row.sentence, prose=True),
    )
    return replace(answer_page(answer, sentence, columns), empty=sentence)


def require_age(answer: StatusList) -> None:
    """Raises `InsufficientError` if most of what is measured has too few rounds."""
    if answer.verdict is Verdict.TOO_YOUNG:
        hint = "wait for more rounds; `isochrone coverage` counts them"
        raise InsufficientError("it is too early to judge", hint=hint)


def _style(row: Finding) -> str:
    return "red" if row.severity is Severity.CRITICAL else "yellow"
