"""How `check` and `doctor` print what they found."""

from collections.abc import Iterable

import click

from isochrone_wire.health_check import CheckResult, Verdict

_COLOUR_OF = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def as_table(results: Iterable[CheckResult]) -> str:
    """A line per finding, and below it what would help where something is the matter."""
    lines: list[str] = []
    for finding in results:
        verdict = click.style(f"{finding.verdict:4}", fg=_COLOUR_OF[finding.verdict])
        lines.append(f"{verdict}  {finding.check:18}  {finding.sentence}")
        lines += [f"{'':4}  {'':18}  → {finding.hint}"] if finding.hint else []
    return "\n".join(lines)
