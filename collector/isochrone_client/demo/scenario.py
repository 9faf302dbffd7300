"""The scenarios of the demo: its vantages, its plan, the events of the providers, and the ground truth of the simulated
world. Pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isochrone_client.formats import milliseconds, number
from isochrone_client.pages.matrix import Cell, Matrix, Place

HOST = "llm.isochrone.test"
BASELINE = "us-east-2"
# A demo of one minute has the 24 rounds that a decision needs. Slow models are still answering when the next begins.
EVERY_SECONDS = 2
OVERLAP = "allow"
# Commands to try while a demo runs; each is also an example in the help of its command.
SUGGESTIONS = (
    "isochrone diff --baseline us-east --explain kimi-k2.5",
    # From every region the best of these models is much faster than glm-4-32b, and the last one much slower.
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
PROMPT = "Explain recursion in 200 words"
# Long enough to measure speed.
MAX_OUTPUT_TOKENS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Vantage:
    """One vantage of the demo, and the round trip between its region and the providers in milliseconds."""

    name: str
    region: str
    round_trip_ms: int


# The round trips are assumed: shortest from Singapore, and from Frankfurt those 25 ms longer than from Ohio that the
# world assumes for the distance. They are part of a model's time to first token, which is longer from everywhere.
VANTAGES = (
    Vantage(name="ohio-1", region="us-east-2", round_trip_ms=60),
    Vantage(name="singapore-1", region="ap-southeast-1", round_trip_ms=30),
    Vantage(name="frankfurt-1", region="eu-central-1", round_trip_ms=85),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRoute:
    """A route of the demo's plan: its objective, in milliseconds, and its members; without data the first is used."""

    name: str
    slo_class: str
    ttft_p95_ms: int
    members: tuple[str, ...]


ROUTES = (
    DemoRoute(
        name="voice-fast",
        slo_class="voice",
        ttft_p95_ms=300,
        members=("stepfun/step-3.5-flash", "deepseek/deepseek-v4-flash", "bytedance/doubao-seed-lite"),
    ),
    DemoRoute(
        name="chat",
        slo_class="chat",
        ttft_p95_ms=1000,
        members=("tencent/hunyuan-turbos", "zhipu/glm-4-32b", "minimax/minimax-m2.5"),
    ),
    DemoRoute(
        name="code",
        slo_class="code",
        ttft_p95_ms=500,
        members=("qwen/qwen3-32b", "deepseek/deepseek-v4-pro", "moonshot/kimi-k2.5"),
    ),
)
MIN_SUCCESS = 0.95
# The widest interval with which the size of a change is stated, as a share of that size.
_KNOWN_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedEvent:
    """What happens to a provider, in seconds after the start, and for how long; an end has no duration."""

    after_seconds: int
    sentence: str
    lasting_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A slowdown of a provider from one region: added milliseconds, seconds after the start, duration in seconds."""

    provider: str
    region: str
    added_ms: int
    after_seconds: int
    lasting_seconds: int

    @property
    def script(self) -> tuple[ScriptedEvent, ...]:
        """Its beginning and its end."""
        return (
            ScriptedEvent(
                after_seconds=self.after_seconds,
                sentence=f"{self.provider} gets {self.added_ms} ms slower from {self.region}",
                lasting_seconds=self.lasting_seconds,
            ),
            ScriptedEvent(
                after_seconds=self.after_seconds + self.lasting_seconds,
                sentence=f"{self.provider} is as fast as before from {self.region}",
            ),
        )


# Starts after a demo of one minute has ended, and affects no published difference.
EPISODE = Episode(provider="tencent", region="eu-central-1", added_ms=400, after_seconds=75, lasting_seconds=180)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """HTTP errors of a provider: their status, their first region, the seconds after the start from which on they come
    from there, from which on they come from every region, and at which they end.
    """

    provider: str
    status: int
    region: str
    after_seconds: int
    everywhere_after_seconds: int
    until_seconds: int

    @property
    def script(self) -> tuple[ScriptedEvent, ...]:
        """Its beginning, its spread unless it is everywhere at once, and its end."""
        begins = {self.after_seconds: f"from {self.region}", self.everywhere_after_seconds: "from every region"}
        return (
            *(
                ScriptedEvent(
                    after_seconds=after,
                    sentence=f"{self.provider} answers with HTTP {self.status} {where}",
                    lasting_seconds=self.until_seconds - after,
                )
                for after, where in begins.items()
            ),
            ScriptedEvent(after_seconds=self.until_seconds, sentence=f"{self.provider} answers as before"),
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the simulator."""
        begins = {
            vantage.region: self.after_seconds if vantage.region == self.region else self.everywhere_after_seconds
            for vantage in VANTAGES
        }
        return tuple(
            word
            for region, after in begins.items()
            for word in (
                *("--fault-episode", self.provider, region),
                *map(str, (self.status, after, self.until_seconds - after)),
            )
        )


# Both have a single model, so that there are few messages. An incident is reported within six seconds, and its
# end within ten.
OUTAGES = (
    Outage(
        provider="stepfun",
        status=500,
        region="eu-central-1",
        after_seconds=10,
        everywhere_after_seconds=25,
        until_seconds=35,
    ),
    Outage(
        provider="bytedance",
        status=429,
        region="eu-central-1",
        after_seconds=18,
        everywhere_after_seconds=18,
        until_seconds=40,
    ),
)
NEVER_WORKED = ("example", "never-deployed")
"""The provider and the name of a model that the world does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens in a demo, the options of the simulator for it, the commands to try, and the targets of the plan,
    as provider and model, that the world does not have.
    """

    script: tuple[ScriptedEvent, ...]
    simulator_options: tuple[str, ...]
    suggestions: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()


SLOWDOWN = Scenario(
    script=EPISODE.script,
    simulator_options=(
        *("--episode", EPISODE.provider, EPISODE.region),
        *map(str, (EPISODE.added_ms, EPISODE.after_seconds, EPISODE.lasting_seconds)),
    ),
    suggestions=SUGGESTIONS,
)
FAULTS = Scenario(
    script=tuple(
        sorted((event for outage in OUTAGES for event in outage.script), key=lambda event: event.after_seconds)
    ),
    simulator_options=tuple(word for outage in OUTAGES for word in outage.options),
    suggestions=FAULT_SUGGESTIONS,
    missing=(NEVER_WORKED,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the world: its price in US dollars per million output tokens, and per region the true difference to
    the baseline's time to first token, in microseconds, with the source of that figure.
    """

    name: str
    provider: str
    usd_per_m_output: float
    differential_us: Mapping[str, int]
    source: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The simulated world as the simulator describes it."""

    models: tuple[Model, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The target of each model."""
        return tuple(f"{model.provider}/{model.name}" for model in self.models)


def read_world(text: str) -> World:
    """Parse the output of `isochrone-sim world --output json`."""
    return World(
        models=tuple(
            Model(
                name=model["id"],
                provider=model["provider"],
                usd_per_m_output=model["usd_per_m_output"],
                differential_us=model["differential_us"],
                source=model["offset_source"],
            )
            for model in json.loads(text)["models"]
        )
    )


def control(world: World) -> str:
    """The control target, which shows whether a region itself has problems: the cheapest target."""
    cheapest = min(world.models, key=lambda model: (model.usd_per_m_output, model.name))
    return f"{cheapest.provider}/{cheapest.name}"


def plan_document(world: World, missing: tuple[tuple[str, str], ...] = ()) -> str:
    """The demo's plan for the models of the world, and for some that it does not have, as JSON, which is valid YAML."""
    targets = [
        {
            "provider": model.provider,
            "model": model.name,
            "workload": "demo",
            "price": {"usd_per_m_input": 0.0, "usd_per_m_output": model.usd_per_m_output},
        }
        for model in world.models
    ]
    targets += [{"provider": provider, "model": model, "workload": "demo"} for provider, model in missing]
    providers = dict.fromkeys([*(model.provider for model in world.models), *(provider for provider, _ in missing)])
    plan = {
        "baseline": BASELINE,
        "control": control(world),
        "every": f"{EVERY_SECONDS}s",
        "overlap": OVERLAP,
        "workloads": {"demo": {"prompt": PROMPT, "max_output_tokens": MAX_OUTPUT_TOKENS}},
        "providers": {provider: {"base_url": f"http://{HOST}/v1"} for provider in providers},
        "targets": targets,
        "routes": routes(world),
    }
    return json.dumps(plan, indent=1)


def routes(world: World) -> list[dict[str, Any]]:
    """The routes whose members are all in the world, in the form of a plan."""
    return [
        {
            "name": route.name,
            "members": route.members,
            "slo": {"class": route.slo_class, "ttft_p95_ms": route.ttft_p95_ms, "min_success": MIN_SUCCESS},
            "static_order": route.members[:2],
        }
        for route in ROUTES
        if set(route.members) <= set(world.targets)
    ]


class Timeline:
    """The events so far, oldest first, each with the second in which it was noticed. `seconds` is the length of the
    demo, `None` without an end; only what happens within it is announced.
    """

    def __init__(self, script: Sequence[ScriptedEvent], *, seconds: float | None) -> None:
        self._seconds = seconds
        self._scripted = list(script)
        self._changed: list[Place] = []
        self.events: list[str] = []

    def coming(self, elapsed: float) -> str:
        """The announcement of what begins next; empty if nothing does before the end of the demo."""
        end = float("inf") if self._seconds is None else self._seconds
        for event in self._scripted:
            if event.lasting_seconds is not None and elapsed < event.after_seconds < end:
                is_cut_short = event.after_seconds + event.lasting_seconds > end
                until = "until the end" if is_cut_short else f"for {event.lasting_seconds} s"
                return f"in {event.after_seconds - elapsed:.0f} s {event.sentence}, {until}"
        return ""

    def note(self, elapsed: float, found: Matrix, reported: Iterable[str]) -> list[str]:
        """Add what is new at `elapsed` seconds, with what the collector has `reported`, and return it."""
        due = [event for event in self._scripted if event.after_seconds <= elapsed]
        self._scripted = self._scripted[len(due) :]
        new = [f"{event.after_seconds} s: {_scripted(event)}" for event in due]
        new += [f"{elapsed:.0f} s: {sentence}" for sentence in (*self._measured(found), *reported)]
        self.events += new
        return new

    def _measured(self, found: Matrix) -> Iterator[str]:
        for place in found.changed:
            cell = found.cell(*place)
            if _is_known(cell) and place not in self._changed:
                self._changed.append(place)
                yield f"measured: {_change(place, cell)}"
        for target, region in [place for place in self._changed if place not in found.changed]:
            self._changed.remove((target, region))
            yield f"measured: {target} is as fast as at the start from {region}"


def _is_known(cell: Cell) -> bool:
    """Return whether the size of a change is known: the rounds of the window agree on it."""
    row = cell.firm
    if row is None or cell.changed is None or row.shift_low is None or row.shift_high is None:
        return False
    return row.shift_high - row.shift_low <= _KNOWN_SHARE * abs(cell.changed)


def _scripted(event: ScriptedEvent) -> str:
    return event.sentence if event.lasting_seconds is None else f"{event.sentence}, for {event.lasting_seconds} s"


def _change(place: Place, cell: Cell) -> str:
    target, region = place
    change = milliseconds(cell.changed) or 0.0
    by = f"{number(abs(change))} ms {'longer' if change > 0 else 'less'}"
    return f"{target} takes {by} from {region} than at the start"
