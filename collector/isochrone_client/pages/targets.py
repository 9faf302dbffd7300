"""The targets of the plan in force."""

from isochrone_client.errors import BaselineError, InsufficientError
from isochrone_client.formats import UNKNOWN, dollars, span
from isochrone_client.render.page import Column, Page
from isochrone_client.render.record import wire_fields
from isochrone_wire.answers import TargetList
from isochrone_wire.model import Target

SCHEMA = "isochrone.targets/1"
_NO_PLAN_HINT = "an operator applies one with isochrone-collector apply plan.yaml"


def page(answer: TargetList) -> Page[Target]:
    """The page of the plan's targets, by name."""
    return Page(
        schema=SCHEMA,
        title=f"plan {answer.plan_version}, baseline {answer.baseline or UNKNOWN}",
        facts={"plan_version": answer.plan_version, "baseline": answer.baseline},
        fields=wire_fields(Target),
        columns=_COLUMNS,
        rows=tuple(sorted(answer.targets, key=lambda target: target.name)),
    )


def require_targets(answer: TargetList) -> None:
    """Raises `InsufficientError` without a plan, or if it has no targets."""
    if not answer.plan_version:
        raise InsufficientError("no plan has been applied yet", hint=_NO_PLAN_HINT)
    if not answer.targets:
        raise InsufficientError(f"plan {answer.plan_version} has no targets", hint=_NO_PLAN_HINT)


def require_baseline(answer: TargetList) -> str:
    """The plan's baseline region. Raises `BaselineError` if there is none."""
    if not answer.baseline:
        raise BaselineError(
            "no plan has been applied yet, so there is no baseline region",
            hint="use --baseline, or apply a plan with isochrone-collector apply plan.yaml",
        )
    return answer.baseline


_COLUMNS: tuple[Column[Target], ...] = (
    Column(heading="target", text=lambda target: target.name, wide=True),
    Column(heading="model", text=lambda target: target.model, wide=True),
    Column(heading="dialect", text=lambda target: target.dialect, wide=True),
    Column(heading="every", text=lambda target: span(target.every_us)),
    Column(heading="parallel", text=lambda target: str(target.workload.concurrency)),
    Column(
        heading="output",
        unit="$/M",
        text=lambda target: dollars(target.price.usd_per_m_output if target.price else None),
    ),
    Column(heading="endpoint", text=lambda target: target.base_url, wide=True),
)
