"""The world: regions, models, and their true differences, which a measurement should find. All values are frozen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

BASELINE_REGION = "us-east-2"


class Source(StrEnum):
    """The source of an offset: published, assumed by us, or chosen by the author of a world file."""

    PUBLISHED = "published"
    ASSUMED = "assumed"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The location of clients: a slug such as `ap-southeast-1`, and a display name."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Offset:
    """Additional time to first token in a region relative to the baseline, in microseconds; may be negative."""

    us: int
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and its timing from the baseline region.

    `ttft_us` is the median time to first token at average load, `jitter_us` its standard deviation between requests. An
    answer has `answer_tokens` tokens unless the request sets a lower limit. `fault` names an entry of `faults.FAULTS`,
    which affects `fault_share` of the requests. A `steady` model is independent of its provider's load. With
    `fixed_temperature` it refuses any temperature but 1; with `efforts` it refuses all other reasoning efforts and, in
    dialects that have them, thinking budgets.
    """

    id: str
    title: str
    provider: str
    ttft_us: int
    tokens_per_second: float
    usd_per_m_output: float = 0.0
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    reasoning: bool = False
    fixed_temperature: bool = False
    efforts: tuple[str, ...] = ()
    dialect: str = "openai-chat"
    answer_tokens: int = 150
    jitter_us: int = 1_000
    steady: bool = False
    fault: str | None = None
    fault_share: float = 1.0
    requests_per_minute: int = 60_000
    tokens_per_minute: int = 60_000_000

    def offset_us(self, region: str) -> int:
        """Return the additional microseconds of `region` relative to the baseline; 0 without an offset."""
        offset = self.offsets.get(region)
        return offset.us if offset else 0

    def ttft_us_in(self, region: str) -> int:
        """Return the median time to first token from `region` at average load, in microseconds."""
        return self.ttft_us + self.offset_us(region)

    def differential_us(self, region: str, baseline: str) -> int:
        """Return the true difference `region` minus `baseline` in microseconds; it is independent of load."""
        return self.offset_us(region) - self.offset_us(baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A slow episode of a provider: from `from_at` until `until_at` (wall-clock instants in microseconds), first tokens
    take `added_us` longer, from one region only.
    """

    provider: str
    region: str
    added_us: int
    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEpisode:
    """A fault of all models of a provider, for requests from one region: an entry of `faults.FAULTS`, from `from_at`
    until `until_at` (wall-clock instants in microseconds).
    """

    provider: str
    region: str
    fault: str
    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Regions and models by name. `load_amplitude` and `pace_amplitude` are the shares by which load varies the time to
    first token and the tokens per second. Published differences do not include `episodes`.

    `round_trips_us` are the real round trips, in microseconds, between the clients of a region and this simulator. They
    are part of a model's time to first token: a first token is sent one round trip earlier, so that it arrives in time.
    """

    title: str
    source: str
    regions: Mapping[str, Region]
    models: Mapping[str, Model]
    baseline: str = BASELINE_REGION
    seed: int = 1
    load_amplitude: float = 0.12
    pace_amplitude: float = 0.02
    episodes: tuple[Episode, ...] = ()
    fault_episodes: tuple[FaultEpisode, ...] = ()
    round_trips_us: Mapping[str, int] = field(default_factory=dict)

    def added_us(self, provider: str, region: str, *, at: int) -> int:
        """Return the delay that episodes add to a provider's first tokens from a region at an instant; both in
        microseconds.
        """
        return sum(
            episode.added_us
            for episode in self.episodes
            if (episode.provider, episode.region) == (provider, region) and episode.from_at <= at < episode.until_at
        )

    def fault_of(self, provider: str, region: str, *, at: int) -> str | None:
        """Return the fault of a provider, from a region, at an instant in microseconds."""
        faults = (
            episode.fault
            for episode in self.fault_episodes
            if (episode.provider, episode.region) == (provider, region) and episode.from_at <= at < episode.until_at
        )
        return next(faults, None)

    def with_models(self, models: Iterable[Model]) -> "World":
        """Return the world with more models; a model with an existing id replaces the other one."""
        return replace(self, models={**self.models, **{model.id: model for model in models}})
