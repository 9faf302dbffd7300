"""The questions of the live view to a collector."""

from dataclasses import dataclass, replace

from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.live_view.answers import Answers, Detail, Question
from isochrone_client.names import Names
from isochrone_client.pages.targets import require_targets
from isochrone_client.screen.table import MOST_BARS
from isochrone_client.window import parse_window
from isochrone_wire.answers import Selection
from isochrone_wire.fleet import TargetList
from isochrone_wire.insights import Alert

_DETAIL_POINTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The answers about all targets, and those about one of them if they were asked for."""

    answers: Answers
    detail: Detail | None = None


class Observer:
    """Questions to one collector. Its methods raise `ClientError`."""

    def __init__(self, client: ObservatoryClient) -> None:
        self._client = client

    def observe(self, question: Question, detail: str = "") -> Observation:
        """Ask about all targets and, unless it is empty, about the target `detail`."""
        self._client.renew()  # this command may run for years
        answers = self._answers(question)
        return Observation(answers=answers, detail=self._detail(answers, detail) if detail else None)

    def _answers(self, question: Question) -> Answers:
        client, answered_at = self._client, now_at()
        plan = client.list_targets()
        require_targets(plan)
        baseline, regions = self._regions(question, plan)
        window = parse_window(question.window, now_at=answered_at)
        only = regions if question.regions else ()
        everywhere = Selection(window=window, targets=question.targets)
        selection = replace(everywhere, regions=(baseline, *only) if only else ())
        leaderboard = client.get_leaderboard(selection, order=question.order)
        found = {row.target for row in leaderboard.standings}
        return Answers(
            question=question,
            answered_at=answered_at,
            baseline=baseline,
            regions=regions,
            targets=tuple(sorted(found if question.targets else found | {one.name for one in plan.targets})),
            leaderboard=leaderboard,
            differentials=client.get_differentials(everywhere, baseline=baseline, against=only, metric=question.metric),
            series=client.get_series(selection, metric=question.metric, points=MOST_BARS),
            incidents=client.list_incidents(window).incidents,
            newest_event=_newest(client.list_alerts(window).alerts),
        )

    def _regions(self, question: Question, plan: TargetList) -> tuple[str, tuple[str, ...]]:
        """The baseline region, and the other regions of the question; short names are expanded."""
        fleet = self._client.list_vantages()
        known = dict.fromkeys(filter(None, (plan.baseline, *sorted(one.region for one in fleet.vantages))))
        names = Names(regions=frozenset(known), targets=plan.targets)
        baseline = names.region(question.baseline or plan.baseline or next(iter(known), ""))
        chosen = {names.region(text) for text in question.regions} or known.keys()
        return baseline, tuple(region for region in known if region in chosen and region != baseline)

    def _detail(self, answers: Answers, target: str) -> Detail:
        client, question = self._client, answers.question
        selection = Selection(window=answers.leaderboard.window, targets=(target,))
        return Detail(
            target=target,
            baseline=answers.baseline,
            leaderboard=client.get_leaderboard(selection, order=question.order),
            differentials=client.get_differentials(
                selection, baseline=answers.baseline, metric=question.metric, explain=True
            ),
            series=client.get_series(selection, metric=question.metric, points=_DETAIL_POINTS),
            coverage=client.get_coverage(selection),
        )


def _newest(alerts: tuple[Alert, ...]) -> Alert | None:
    return max(alerts, key=lambda alert: (alert.raised_at, alert.id), default=None)
