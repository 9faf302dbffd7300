"""Plans as an operator's commands speak of them: ask a running collector, and say what comes of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import grpc

from isochrone_collector.cli.operator_channel import TIMEOUT_S, operator_channel, translated
from isochrone_collector.plans.diff import GONE_ROUTE, NEW_ROUTE, PER_DAY
from isochrone_wire import codec
from isochrone_wire.insights import Alert
from isochrone_wire.json_format import rfc3339, to_json_value
from isochrone_wire.operations import PlanChange, PlanDocument, PlanHistory, PlanVersion
from isochrone_wire.v1 import operations_pb2, operations_pb2_grpc

WIDTH = 100
_SIGN_OF_ROUTES = {NEW_ROUTE: "+", GONE_ROUTE: "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Which collector is asked, and as whom; `None` as `operator_channel` takes it. Every question raises
    `SettingsError`, `CollectorUnreachable`, or `CollectorError` when the collector refuses.
    """

    collector: str | None = None
    identity: Path | None = None

    def apply(self, document: str, *, dry_run: bool, applied_by: str) -> PlanChange:
        """What the collector says to a document."""
        request = operations_pb2.ApplyPlanRequest(document=document, dry_run=dry_run, applied_by=applied_by)
        return codec.decode(PlanChange, self._ask("ApplyPlan", request))

    def roll_back(self, to_version: int, *, dry_run: bool, applied_by: str) -> PlanChange:
        """What the collector says to applying an earlier version again."""
        request = operations_pb2.RollBackPlanRequest(to_version=to_version, dry_run=dry_run, applied_by=applied_by)
        return codec.decode(PlanChange, self._ask("RollBackPlan", request))

    def document(self, version: int | None) -> PlanDocument:
        """One plan as it was written; for `None` the one in force."""
        return codec.decode(PlanDocument, self._ask("GetPlan", operations_pb2.GetPlanRequest(version=version)))

    def history(self, limit: int) -> PlanHistory:
        """The newest plans."""
        return codec.decode(PlanHistory, self._ask("ListPlans", operations_pb2.ListPlansRequest(limit=limit)))

    def test_alert(self) -> Alert:
        """What became of a test alert that was sent just now."""
        return codec.decode(Alert, self._ask("TestAlert", operations_pb2.TestAlertRequest()))

    def _ask(self, method: str, request: Any) -> Any:  # noqa: ANN401  # messages, which the stubs do not tell apart
        with operator_channel(self.collector, self.identity) as channel:
            try:
                return getattr(operations_pb2_grpc.OperationsStub(channel), method)(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise translated(error, self.collector) from error


def as_json(value: PlanChange | PlanDocument | PlanHistory) -> str:
    """The value as a JSON object, its keys those of the value, instants as text."""
    return json.dumps(to_json_value(value), indent=2, ensure_ascii=False)


def as_text(change: PlanChange) -> str:
    """The change as lines for a person, none wider than `WIDTH` unless one word is."""
    return "\n".join(part for line in _lines(change) for part in _folded(line))


def history_as_text(history: PlanHistory) -> str:
    """The plans as a table for a person."""
    rows = [("VERSION", "APPLIED", "TARGETS", "BY"), *(_row(plan) for plan in history.plans)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join((*map(str.ljust, row[:3], widths), row[3])) for row in rows)


def _row(plan: PlanVersion) -> tuple[str, str, str, str]:
    who = plan.applied_by if plan.restores is None else f"{plan.applied_by}, restoring {plan.restores}"
    return str(plan.version), rfc3339(plan.applied_at), str(plan.targets), who


def _lines(change: PlanChange) -> Iterator[str]:
    if not change.changed:
        yield f"unchanged: plan {change.version} already says this"
    else:
        yield f"plan {change.version}"
    yield from (f"  + {name}" for name in change.added)
    yield from (f"  - {name}" for name in change.removed)
    yield from (f"  {_signed(line)}" for line in change.altered if not line.startswith(PER_DAY))
    spend = "spend unknown: no target has a price"
    if change.usd_per_day is not None:
        spend = f"at most {change.usd_per_day:.2f} USD where prices are known"
    yield f"per vantage and day: {change.requests_per_day} requests, {spend}"
    yield from (f"  {line}" for line in change.altered if line.startswith(PER_DAY))


def _signed(line: str) -> str:
    for beginning, sign in _SIGN_OF_ROUTES.items():
        if line.startswith(beginning):
            return f"{sign} route {line.removeprefix(beginning)}"
    return f"~ {line}"


def _folded(line: str) -> Sequence[str]:
    if len(line) <= WIDTH:
        return [line]
    return wrap(line, WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)
