"""The targets of the plan in force, and the column of targets that many pages have."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from isochrone_client.errors import BaselineError, InsufficientError
from isochrone_client.formats import UNKNOWN, amount_dollars, span
from isochrone_client.render.page import Column, Page, Row, wire_fields
from isochrone_wire.queries.documents import FORMATS

if TYPE_CHECKING:
    from isochrone_wire.fleet import TargetList
    from isochrone_wire.model import Target

FORMAT = FORMATS["TargetList"]
PROVIDERS = "providers of targets"
"""The name of what a target has no longer when it is shortened."""

_PROVIDER = re.compile(r"(?<![^ ])[A-Za-z0-9][\w.-]*/(?=[\w.-])")
_NO_PLAN_HINT = "an operator applies one with isochrone-collector apply plan.yaml"


def page(answer: "TargetList") -> "Page[Target]":
    """The page of the plan's targets, by name."""
    from isochrone_wire.model import Target  # noqa: PLC0415  # other pages need no values of the plan

    rows: tuple[Target, ...] = FORMAT.rows_of(answer)
    return Page(
        schema=FORMAT.schema,
        title=f"plan {answer.plan_version}, baseline {answer.baseline or UNKNOWN}",
        facts=FORMAT.facts(answer),
        fields=wire_fields(Target),
        columns=_columns(rows),
        rows=rows,
    )


def require_targets(answer: "TargetList") -> None:
    """Raises `InsufficientError` without a plan, or if it has no targets."""
    if not answer.plan_version:
        raise InsufficientError("no plan has been applied yet", hint=_NO_PLAN_HINT)
    if not answer.targets:
        raise InsufficientError(f"plan {answer.plan_version} has no targets", hint=_NO_PLAN_HINT)


def require_baseline(baseline: str) -> str:
    """The plan's baseline region. Raises `BaselineError` if there is none."""
    if not baseline:
        raise BaselineError(
            "no plan has been applied yet, so there is no baseline region",
            hint="use --baseline, or apply a plan with isochrone-collector apply plan.yaml",
        )
    return baseline


def target_column(
    rows: Sequence[Row], of: Callable[[Row], str], *, mark: Callable[[Row, str], str] = lambda _row, name: name
) -> Column[Row]:
    """The column of the targets of `rows`; on a narrow screen without their providers, where the models differ.

    `mark` adds the mark of a footnote to a name.
    """
    models = Counter(_model_part(name) for name in {of(row) for row in rows})

    def short(row: Row) -> str:
        model = _model_part(of(row))
        return mark(row, model if models[model] == 1 else of(row))

    return Column(heading="target", text=lambda row: mark(row, of(row)), wide=True, short=short, short_of=PROVIDERS)


def without_providers(sentence: str) -> str:
    """A sentence with the models of its targets only: `kimi-k2.5` for `moonshot/kimi-k2.5`."""
    return _PROVIDER.sub("", sentence)


def _model_part(name: str) -> str:
    return name.partition("/")[2] or name


def _columns(rows: "tuple[Target, ...]") -> "tuple[Column[Target], ...]":
    """The columns of the targets; the model has one only if a target's name does not end with it."""
    named = all(target.name == f"{target.provider}/{target.model}" for target in rows)
    model: Column[Target] = Column(heading="model", text=lambda target: target.model, wide=True, priority=2)
    return (
        target_column(rows, lambda target: target.name),
        *(() if named else (model,)),
        Column(heading="dialect", text=lambda target: target.dialect, wide=True, priority=3),
        Column(heading="every", text=lambda target: span(target.every_us)),
        Column(heading="parallel", text=lambda target: str(target.workload.concurrency), priority=5),
        Column(
            heading="output",
            unit="$/M",
            text=lambda target: amount_dollars(target.price.usd_per_m_output if target.price else None),
            priority=1,
        ),
        Column(heading="endpoint", text=lambda target: target.base_url, wide=True, priority=4),
    )
