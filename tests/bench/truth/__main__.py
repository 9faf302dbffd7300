"""The statistics against simulated series with known truth: coverage of intervals, decisions, tails and switches.

The seed is fixed, so a figure changes only with the code. The parts take 150 s of processor time, on all cores.

usage: python -m bench.truth [SEED] prints a table per subject and a RESULT line; exit 1 when a goal is missed
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from bench.result import at_least, at_most, conclude
from bench.truth import (
    best_regions,
    decisions,
    incidents,
    intervals,
    months,
    outages,
    ranks,
    region_shock,
    route_claims,
    routing,
    shared_stalls,
    speed,
    ticks,
    verdicts,
    weekly_cycles,
)
from bench.truth.intervals import CASES_WITHOUT_WEEK, TAIL_CASES, Coverage

SEED = 20261122

GOALS = {
    "missed_cases": at_most(0),
    "worst_coverage_with_history": at_least(0.9),
    "worst_coverage_without": at_least(0.8),
    "width_iid": at_most(1.25),
    "false_decisions_pct": at_most(6),
    "false_decisions_without_history_pct": at_most(12),
    # Four seeds have 95.7 on average; a seed varies by 0.4.
    "power_pct": at_least(94.5),
    "null_tables_with_a_decision_pct": at_most(5),
    "false_share_of_decisions_pct": at_most(5),
    "wrong_sign_pct": at_most(5),
    "wrong_equivalent_pct": at_most(5),
    "wrong_yes_pct": at_most(5),
    "right_yes_pct": at_least(18),
    "right_yes_of_routes_pct": at_least(90),
    "right_yes_without_week_pct": at_least(50),
    "p95_shown_coverage_pct": at_least(90),
    "p95_worst_coverage_pct": at_least(90),
    "p95_at_least_coverage_pct": at_least(90),
    "p95_shown_pct": at_least(74.5),
    "month_coverage": at_least(0.9),
    "tick_coverage": at_least(0.9),
    "summary_goodput_error_points": at_most(10),
    "drift_alarms_month": at_most(0.1),
    "rounds_to_step_of_half": at_most(24),
    "incident_20pct_rounds": at_most(30),
    "false_alarms_a_year": at_most(1),
    "outage_error_points": at_most(1.5),
    "flush_speed_bias_pct": at_most(3),
    "race_p99_error_pct": at_most(10),
    "hedged_common_stalls": at_most(0),
    "region_shock_coverage": at_least(0.9),
    "best_region_coverage_pct": at_least(90),
    "equal_regions_that_decide_pct": at_most(5),
    "slower_regions_decided_pct": at_least(50),
    "rank_coverage_pct": at_least(90),
    "claimed_wrong_neighbours_pct": at_most(5),
    "equal_ranks_excluded_pct": at_most(5),
    "ranks_excluded_pct": at_least(20),
    "switches_a_day": at_most(1),
}


_HEADINGS = {
    "verdicts": '"yes" although the true p95 is 5 % over the limit, or 7 % fail in runs, in per cent',
    "routes": "the same in route tables, without a week",
    "routes with a week": "the same in route tables, with a week",
    "months": "coverage of summaries of thirty days with a week of history",
    "summaries": "error of the goodput of summaries, in points",
    "ticks": "least coverage with a clock of whole milliseconds",
    "false alarms": "false alarms of a target a year at 1 % failing",
    "outages": "error of the reported share of an outage, in points",
    "speed": "mean error of the speed under timers that release tokens, in per cent",
    "weekly alarms": "drift alarms of a series with weekly cycles in a month, from the fourth week on",
    "steps": "median rounds until a lasting step is found in such a series",
    "stalls": "stalls that members of a route share",
    "shock": "coverage of `regions --best` under a shock that all targets share",
}


def _parts(seed: int) -> Mapping[str, Callable[[], Any]]:
    """Return all parts by name, the longest first: they run on all cores."""
    return {
        "steps": partial(weekly_cycles.rounds_to_step, seed),
        "weekly alarms": partial(weekly_cycles.drift_alarms_month, seed),
        "decisions with a week": partial(decisions.false_decisions_pct, seed, has_history=True),
        "decisions": partial(decisions.false_decisions_pct, seed, has_history=False),
        "differences": partial(intervals.measured, seed),
        "ranked": partial(intervals.measured_standings, seed),
        "medians": partial(intervals.measured_standings, seed, cases=CASES_WITHOUT_WEEK),
        "tails": partial(intervals.measured_standings, seed, cases=TAIL_CASES),
        "verdicts": partial(verdicts.wrong_yes_pct, seed),
        "verdicts with a week": partial(verdicts.wrong_yes_with_week_pct, seed),
        "right": partial(verdicts.right_yes_pct, seed),
        "right without a week": partial(verdicts.right_yes_without_week_pct, seed),
        "routes": partial(route_claims.wrong_yes_pct, seed, has_history=False),
        "routes with a week": partial(route_claims.wrong_yes_pct, seed, has_history=True),
        "right routes": partial(route_claims.right_yes_pct, seed),
        "months": partial(months.coverage, seed),
        "summaries": partial(months.goodput_error_points, seed),
        "ticks": partial(ticks.coverage, seed),
        "false alarms": partial(incidents.false_alarms_a_year, seed),
        "incidents": partial(incidents.rounds_to_find, seed),
        "outages": outages.error_points,
        "speed": partial(speed.flush_speed_bias_pct, seed),
        "stalls": partial(shared_stalls.figures, seed),
        "shock": partial(region_shock.region_shock, seed),
        "regions": partial(best_regions.figures, seed),
        "ranks": partial(ranks.figures, seed),
        "mixed": partial(decisions.mixed_tables, seed, has_history=False),
        "mixed with a week": partial(decisions.mixed_tables, seed, has_history=True),
        "lone pairs": partial(decisions.lone_pairs, seed),
        "power": partial(decisions.power_pct, seed),
        "null": partial(decisions.null_tables_with_a_decision_pct, seed, has_history=False),
        "null with a week": partial(decisions.null_tables_with_a_decision_pct, seed, has_history=True),
        "equivalent": partial(decisions.wrong_equivalent_pct, seed),
        "switches": partial(routing.switches_a_day, seed),
    }


def main() -> int:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else SEED
    with ProcessPoolExecutor() as pool:
        running = {name: pool.submit(part) for name, part in _parts(seed).items()}
        found = {name: one.result() for name, one in running.items()}
    for name in ("differences", "ranked", "medians", "tails"):
        _print_coverage(found[name])
    for name, heading in _HEADINGS.items():
        _print(heading, found[name])
    return conclude(_figures(found) | {"seed": float(seed)}, GOALS)


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    covered: list[Coverage] = [*found["differences"], *found["ranked"]]
    mixed: list[decisions.MixedTables] = [found[name] for name in ("mixed", "mixed with a week", "lone pairs")]
    wrong = [*found["verdicts"].values(), *found["routes"].values(), *found["routes with a week"].values()]
    return {
        "missed_cases": float(sum(not one.is_met for one in covered)),
        "worst_coverage_with_history": min(one.coverage for one in covered if one.case.has_history),
        "worst_coverage_without": min(one.coverage for one in covered if not one.case.has_history),
        "width_iid": max(one.width for one in covered if one.case.widest is not None),
        "false_decisions_pct": found["decisions with a week"],
        "false_decisions_without_history_pct": found["decisions"],
        "power_pct": found["power"],
        "null_tables_with_a_decision_pct": max(found["null"], found["null with a week"]),
        "false_share_of_decisions_pct": max(one.false_share_of_decisions_pct for one in mixed),
        "wrong_sign_pct": max(one.wrong_sign_pct for one in mixed),
        "wrong_equivalent_pct": found["equivalent"],
        "wrong_yes_pct": max(*wrong, found["verdicts with a week"]),
        "right_yes_pct": found["right"],
        "right_yes_of_routes_pct": found["right routes"],
        "right_yes_without_week_pct": found["right without a week"],
        **intervals.tails(found["tails"]),
        "drift_alarms_month": max(found["weekly alarms"].values()),
        "rounds_to_step_of_half": max(rounds for name, rounds in found["steps"].items() if "50" in name),
        "summary_goodput_error_points": max(found["summaries"].values()),
        "tick_coverage": min(found["ticks"].values()),
        "month_coverage": min(found["months"].values()),
        "incident_20pct_rounds": found["incidents"],
        "false_alarms_a_year": max(found["false alarms"].values()),
        "outage_error_points": max(found["outages"].values()),
        "flush_speed_bias_pct": max(found["speed"].values()),
        **{name: found["stalls"][name] for name in ("race_p99_error_pct", "hedged_common_stalls")},
        "region_shock_coverage": min(found["shock"].values()),
        **found["regions"],
        **found["ranks"],
        "switches_a_day": found["switches"],
    }


def _print_coverage(covered: Iterable[Coverage]) -> None:
    _line(
        f"{'coverage of 95 % intervals':<44} {'rounds':>6} {'history':>8} {'coverage':>9} {'width':>6}"
        f" {'shown':>6} {'at least':>9}  goal"
    )
    for one in covered:
        history = "a week" if one.case.has_history else "none"
        goal = (f">= {one.case.least:g}" if one.case.least else "") + (
            f", width <= {one.case.widest:g}" if one.case.widest else ""
        )
        name = f"{one.case.quantity} of {one.case.series}"
        _line(
            f"{name:<44} {one.case.n:>6} {history:>8} {one.coverage:>9.3f} {one.width:>6.2f}"
            f" {one.shown:>6.2f} {one.at_least:>9.3f}  {goal}" + ("" if one.is_met else "  MISSED")
        )


def _print(heading: str, figures: Mapping[str, float]) -> None:
    _line(f"\n{heading}")
    for name, value in figures.items():
        _line(f"  {name:<40} {value:.3g}")


def _line(text: str) -> None:
    print(text)  # noqa: T201  # a bench prints


if __name__ == "__main__":
    sys.exit(main())
