"""The scenarios of the demo: its vantages, its plan, the events of the providers, and the ground truth of the simulated
world beside the measured differentials. Pure.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isochrone_client.formats import Amount, amount_interval, amount_ms, milliseconds, number
from isochrone_client.pages.matrix import Matrix, Place
from isochrone_client.render.page import Column, Page
from isochrone_wire.answers import Differential, DifferentialList

HOST = "llm.isochrone.test"
BASELINE = "us-east-2"
# A demo of one minute has the 24 rounds that a decision needs. Slow models are still answering when the next begins.
EVERY, OVERLAP = "2s", "allow"
# Commands to try while a demo runs; each is also an example in the help of its command.
SUGGESTIONS = (
    "isochrone diff --baseline us-east --explain kimi-k2.5",
    # The best of these models is much faster than glm-4-32b from every region, and the last one much slower.
    "isochrone simulate --target '*b' --policy static:glm --policy routed --policy static:qwen3.5-397b",
    "isochrone report --file report.html",
    "isochrone routes",
    "isochrone routes watch",
)
FAULT_SUGGESTIONS = (
    "isochrone incidents",
    "isochrone incidents --past --window 7d",
    "isochrone alerts",
    "isochrone report --file report.html",
    "isochrone routes watch",
)
# The answer is long enough to measure speed.
WORKLOAD = {"prompt": "Explain recursion in 200 words", "max_output_tokens": 24}
# The round trip between each vantage's region and the providers, in milliseconds. They are assumed: shortest from
# Singapore, and from Frankfurt those 25 ms longer than from Ohio that the world assumes for the distance. They are part
# of a model's time to first token, which is longer from everywhere.
ROUND_TRIPS_MS = {"us-east-2": 60, "ap-southeast-1": 30, "eu-central-1": 85}
VANTAGES = {"us-east-2": "ohio-1", "ap-southeast-1": "singapore-1", "eu-central-1": "frankfurt-1"}
"""The name of the vantage in each region."""
MIN_SUCCESS = 0.95
# name: (class, limit of the objective in milliseconds, members); without data the first member is used.
ROUTES = {
    "voice-fast": (
        "voice",
        300,
        ("stepfun/step-3.5-flash", "deepseek/deepseek-v4-flash", "bytedance/doubao-seed-lite"),
    ),
    "chat": ("chat", 1000, ("tencent/hunyuan-turbos", "zhipu/glm-4-32b", "minimax/minimax-m2.5")),
    "code": ("code", 500, ("qwen/qwen3-32b", "deepseek/deepseek-v4-pro", "moonshot/kimi-k2.5")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedEvent:
    """A fault of a provider: its start and duration in seconds; an end has no duration."""

    after_seconds: int
    sentence: str
    lasting_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A change of a provider's answers: first tokens that are `added_ms` slower, or else errors of an HTTP `status`. It
    begins after so many seconds in each of its regions, and ends everywhere after `until_seconds`.
    """

    provider: str
    begins: Mapping[str, int]
    until_seconds: int
    added_ms: int = 0
    status: int = 0

    @property
    def script(self) -> Iterator[ScriptedEvent]:
        """Its beginning, its spread to more regions, and its end."""
        what = f"gets {self.added_ms} ms slower" if self.added_ms else f"answers with HTTP {self.status}"
        where = ""
        for after in sorted(set(self.begins.values())):
            regions = [region for region, begin in self.begins.items() if begin <= after]
            where = "from every region" if len(regions) == len(VANTAGES) else f"from {', '.join(regions)}"
            sentence = f"{self.provider} {what} {where}"
            yield ScriptedEvent(after_seconds=after, sentence=sentence, lasting_seconds=self.until_seconds - after)
        end = f"is as fast as before {where}" if self.added_ms else "answers as before"
        yield ScriptedEvent(after_seconds=self.until_seconds, sentence=f"{self.provider} {end}")

    @property
    def options(self) -> Iterator[str]:
        """The options of the simulator."""
        for region, after in self.begins.items():
            yield from ("--episode" if self.added_ms else "--fault-episode", self.provider, region)
            yield from map(str, (self.added_ms or self.status, after, self.until_seconds - after))


# Starts after a demo of one minute has ended.
SLOWDOWN = Episode(provider="tencent", begins={"eu-central-1": 75}, until_seconds=255, added_ms=400)
# Both have a single model, so that there are few messages. An incident is reported within six seconds, and its
# end within ten.
OUTAGES = (
    Episode(
        provider="stepfun", begins=dict.fromkeys(VANTAGES, 25) | {"eu-central-1": 10}, until_seconds=35, status=500
    ),
    Episode(provider="bytedance", begins=dict.fromkeys(VANTAGES, 18), until_seconds=40, status=429),
)
NEVER_WORKED = ("example", "never-deployed")
"""The provider and the name of a model that the world does not have."""


Model = Mapping[str, Any]
"""A model of the simulated world, as `isochrone-sim world --output json` describes it: `id`, `provider`, the price in
US dollars per million output tokens, and by region the true difference to the baseline's time to first token, in
microseconds (`differential_us`), with the source of that figure (`offset_source`)."""


def plan_document(models: Sequence[Model], missing: Sequence[tuple[str, str]] = ()) -> str:
    """The demo's plan for the models of the world, and for some that it does not have, as JSON, which is valid YAML.

    The control target, which shows whether a region itself has problems, is the cheapest one.
    """
    targets: list[dict[str, Any]] = [
        {
            "provider": model["provider"],
            "model": model["id"],
            "workload": "demo",
            "price": {"usd_per_m_input": 0.0, "usd_per_m_output": model["usd_per_m_output"]},
        }
        for model in models
    ]
    targets += [{"provider": provider, "model": model, "workload": "demo"} for provider, model in missing]
    cheapest = min(models, key=lambda model: (model["usd_per_m_output"], model["id"]))
    known = {f"{model['provider']}/{model['id']}" for model in models}
    plan = {
        "baseline": BASELINE,
        "control": f"{cheapest['provider']}/{cheapest['id']}",
        "every": EVERY,
        "overlap": OVERLAP,
        "workloads": {"demo": WORKLOAD},
        "providers": {target["provider"]: {"base_url": f"http://{HOST}/v1"} for target in targets},
        "targets": targets,
        "routes": [
            {
                "name": name,
                "members": members,
                "slo": {"class": slo_class, "ttft_p95_ms": limit_ms, "min_success": MIN_SUCCESS},
                "static_order": members[:2],
            }
            for name, (slo_class, limit_ms, members) in ROUTES.items()
            if set(members) <= known
        ],
    }
    return json.dumps(plan, indent=1)


class Timeline:
    """The events so far, oldest first, each with the second in which it was noticed. `seconds` is the length of the
    demo, `None` without an end; only what happens within it is announced.
    """

    def __init__(self, episodes: Sequence[Episode], *, seconds: float | None) -> None:
        self._end = float("inf") if seconds is None else seconds
        script = (event for episode in episodes for event in episode.script)
        self._scripted = sorted(script, key=lambda event: event.after_seconds)
        self._changed: list[Place] = []
        self._slower = [episode for episode in episodes if episode.added_ms]
        self.events: list[str] = []

    def slowed(self, elapsed: float) -> set[tuple[str, str]]:
        """The providers that have been made slower by `elapsed` seconds, each with a region."""
        begins = ((one.provider, region, begin) for one in self._slower for region, begin in one.begins.items())
        return {(provider, region) for provider, region, begin in begins if begin <= elapsed}

    def coming(self, elapsed: float) -> str:
        """The announcement of what begins next; empty if nothing does before the end of the demo."""
        for event in self._scripted:
            if event.lasting_seconds is not None and elapsed < event.after_seconds < self._end:
                is_cut_short = event.after_seconds + event.lasting_seconds > self._end
                until = "until the end" if is_cut_short else f"for {event.lasting_seconds} s"
                return f"in {event.after_seconds - elapsed:.0f} s {event.sentence}, {until}"
        return ""

    def note(self, elapsed: float, found: Matrix | None, reported: Iterable[str]) -> list[str]:
        """Add what is new at `elapsed` seconds, with what the collector has `reported`, and return it."""
        new = []
        while self._scripted and self._scripted[0].after_seconds <= elapsed:
            event = self._scripted.pop(0)
            lasting = "" if event.lasting_seconds is None else f", for {event.lasting_seconds} s"
            new.append(f"{event.after_seconds} s: {event.sentence}{lasting}")
        measured = self._measured(found) if found else ()
        new += [f"{elapsed:.0f} s: {sentence}" for sentence in (*measured, *reported)]
        self.events += new
        return new

    def _measured(self, found: Matrix) -> Iterator[str]:
        for target, region in found.changed:
            cell = found.cell(target, region)
            row, change = cell.firm, cell.changed or 0.0
            # The size of a change is stated when the interval is at most half as wide.
            is_known = row is not None and (row.shift_high or 0.0) - (row.shift_low or 0.0) <= abs(change) / 2
            if is_known and (target, region) not in self._changed:
                self._changed.append((target, region))
                by = f"{number(milliseconds(abs(change)))} ms {'longer' if change > 0 else 'less'}"
                yield f"measured: {target} takes {by} from {region} than at the start"
        for target, region in [place for place in self._changed if place not in found.changed]:
            self._changed.remove((target, region))
            yield f"measured: {target} is as fast as at the start from {region}"


_MISSED = "missed: the true difference is outside of the interval, as it is of one 95 % interval in twenty"
_CHANGED = "changed: the demo has made the provider slower from there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A difference of a model in a region to the baseline, true and measured, in microseconds; positive values are
    slower. The demo `is_changed` the true one in its course.
    """

    model: str
    region: str
    true_us: int
    measured: Differential | None = None
    is_changed: bool = False

    @property
    def shift(self) -> float | None:
        """The measured difference."""
        return self.measured.shift if self.measured else None

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The interval of the measured difference."""
        return (self.measured.shift_low, self.measured.shift_high) if self.measured else (None, None)

    @property
    def error_us(self) -> float | None:
        """Measured minus true."""
        return None if self.shift is None else self.shift - self.true_us

    @property
    def verdict(self) -> str:
        """`found` if the interval contains the true difference, or why it is not found."""
        low, high = self.bounds
        if self.shift is None:
            return "not measured"
        if self.is_changed:
            return "changed"
        if low is None or high is None:
            return "no interval yet"
        return "found" if low <= self.true_us <= high else "missed"


def truths(
    answer: DifferentialList, models: Sequence[Model], slowed: Collection[tuple[str, str]] = ()
) -> tuple[Comparison, ...]:
    """Every difference of the world, and what was measured of it; the providers `slowed` from a region have changed."""
    measured = {(row.model, row.region): row for row in answer.differentials}
    return tuple(
        Comparison(
            model=model["id"],
            region=region,
            true_us=true_us,
            measured=measured.get((model["id"], region)),
            is_changed=(model["provider"], region) in slowed,
        )
        for model in models
        for region, true_us in model["differential_us"].items()
        if region != BASELINE
    )


def truth_page(rows: tuple[Comparison, ...], *, load: float, cores: int) -> Page[Comparison]:
    """The page of the comparisons; `load` is the number of processes that wanted one of the `cores` of this machine."""

    def interval(row: Comparison) -> Amount:
        low, high = map(milliseconds, row.bounds)
        return amount_interval(low, high, signed=True)

    lost = [row for row in rows if row.verdict != "found"]
    verdicts = {row.verdict for row in lost}
    summary = f"{len(rows) - len(lost)} of {len(rows)} true differences found"
    where = ", ".join(f"{row.model} from {row.region} ({row.verdict})" for row in lost)
    busy = f"this machine was busy: {load:.1f} processes wanted its {cores} processors, which delays probes and replies"
    return Page(
        schema="isochrone.demo-truth/1",
        title="ground truth: the differences that the simulated world has, and the measured ones",
        fields=(),
        columns=(
            Column(heading="model", text=lambda row: row.model, wide=True),
            Column(heading="true", unit="ms", text=lambda row: amount_ms(row.true_us, signed=True), scale="ms"),
            Column(heading="measured", unit="ms", text=lambda row: amount_ms(row.shift, signed=True), scale="ms"),
            Column(heading="interval", unit="95 %, ms", text=interval, scale="ms"),
            Column(heading="error", unit="ms", text=lambda row: amount_ms(row.error_us, signed=True)),
            Column(
                heading="truth",
                text=lambda row: row.verdict,
                style=lambda row: {"found": "green", "missed": "red"}.get(row.verdict, "yellow"),
                wide=True,
            ),
        ),
        rows=tuple(sorted(rows, key=lambda row: (row.region, -row.true_us))),
        group=lambda row: f"{row.region} against the baseline, ttft",
        notes=(
            f"{summary}; not found: {where}" if lost else summary,
            *([_MISSED] if "missed" in verdicts else ()),
            *([_CHANGED] if "changed" in verdicts else ()),
            *([busy] if load > cores else ()),
        ),
    )
