"""The world: regions, models, and how far apart they are. Frozen values; the truth that a measurement should find."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

BASELINE_REGION = "us-east-2"


class Source(StrEnum):
    """Where an offset comes from: published by somebody, assumed by us, or chosen by the author of a world file."""

    PUBLISHED = "published"
    ASSUMED = "assumed"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Where clients stand: a slug like `ap-southeast-1` and a name for people."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Offset:
    """How much longer the first token takes from a region than from the baseline, in microseconds; may be negative."""

    us: int
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and its timing from the baseline region.

    `ttft_us` is the median time to first token at average load, `jitter_us` its standard deviation between requests.
    It answers `answer_tokens` tokens unless told to stop earlier. `fault` names an entry of `faults.FAULTS` that
    happens to `fault_share` of its requests. A model that is `steady` ignores its provider's load. One of
    `fixed_temperature` refuses any but 1, and one with `efforts` every other word of reasoning effort and, where the
    dialect has them, budgets of tokens.
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
        """Microseconds that `region` takes longer than the baseline; 0 where nothing is said."""
        offset = self.offsets.get(region)
        return offset.us if offset else 0

    def ttft_us_in(self, region: str) -> int:
        """Median time to first token from `region` at average load, in microseconds."""
        return self.ttft_us + self.offset_us(region)

    def differential_us(self, region: str, baseline: str) -> int:
        """The true difference: `region` minus `baseline`, in microseconds. No load moves it."""
        return self.offset_us(region) - self.offset_us(baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A provider has a hard time: from `from_at` until `until_at` (wall instants in microseconds) its first tokens take
    `added_us` longer, from one region only.
    """

    provider: str
    region: str
    added_us: int
    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Regions and models by name. `load_amplitude` and `pace_amplitude` are how far load moves the time to first token
    and the tokens per second, as a share. No published difference knows of the `episodes`.
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

    def added_us(self, provider: str, region: str, *, at: int) -> int:
        """What episodes add to a provider's time to first token from a region at an instant; both in microseconds."""
        return sum(
            episode.added_us
            for episode in self.episodes
            if (episode.provider, episode.region) == (provider, region) and episode.from_at <= at < episode.until_at
        )

    def with_models(self, models: Iterable[Model]) -> "World":
        """The same world with more models; one of a known id takes the other's place."""
        return replace(self, models={**self.models, **{model.id: model for model in models}})
