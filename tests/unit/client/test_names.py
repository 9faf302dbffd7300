"""Short names have one meaning or none, never a guess; and missing samples a reason, in as few words as possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isochrone_client.absence import _sentences
from isochrone_client.errors import UsageError
from isochrone_client.names import Names
from isochrone_wire.answers import Absence
from isochrone_wire.model import Target


def target(name: str, *, model: str = "") -> Target:
    """A target with a name; its model is the part after the first slash unless given."""
    provider, _, rest = name.partition("/")
    return Target(id=1, name=name, provider=provider, model=model or rest, base_url="https://example.com/v1")


NAMES = Names(
    regions=("us-east-2", "us-west-1", "eu-central-1", "eu-central-2", "eu"),
    targets=(
        target("moonshot/kimi-k2.5"),
        target("moonshot/kimi-k2.5-turbo"),
        target("openai/gpt-5-mini"),
        target("azure/gpt-5-mini"),
        target("together/meta-llama/Llama-3.3-70B"),
        target("fast/long-prompt", model="qwen3-32b"),
    ),
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("us-east-2", "us-east-2"),
        ("us-east", "us-east-2"),
        ("US-East", "us-east-2"),
        ("us-w", "us-west-1"),
        ("eu", "eu"),
        ("mars", "mars"),
        ("east", "east"),
        ("", ""),
    ],
)
def test_regions(text: str, meant: str) -> None:
    """A region is found by its name or by a unique start of it; unknown names are left to the collector."""
    assert NAMES.region(text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("moonshot/kimi-k2.5", "moonshot/kimi-k2.5"),
        ("kimi-k2.5", "moonshot/kimi-k2.5"),
        ("Kimi-K2.5", "moonshot/kimi-k2.5"),
        ("kimi-k2.5-t", "moonshot/kimi-k2.5-turbo"),
        ("llama-3.3-70b", "together/meta-llama/Llama-3.3-70B"),
        ("meta-llama/llama", "together/meta-llama/Llama-3.3-70B"),
        ("qwen3-32b", "fast/long-prompt"),
        ("long-prompt", "fast/long-prompt"),
        ("azure", "azure/gpt-5-mini"),
        ("gpt-*", "gpt-*"),
        ("claude", "claude"),
        ("", ""),
    ],
)
def test_targets(text: str, meant: str) -> None:
    """A target is found by name, model, last part, or the start of these, in that order; patterns are kept."""
    assert NAMES.target(text) == meant


@pytest.mark.parametrize(("text", "candidates"), [("gpt-5-mini", ["azure/", "openai/"]), ("kimi", ["k2.5", "turbo"])])
def test_several_targets_are_listed(text: str, candidates: list[str]) -> None:
    """A short name that matches several targets is a usage error that lists them."""
    with pytest.raises(UsageError) as caught:
        NAMES.target(text)
    assert caught.value.exit_code == 2
    assert all(candidate in str(caught.value) for candidate in candidates)
    assert f"*{text}*" in caught.value.hint


def test_several_regions_are_listed() -> None:
    """An ambiguous region lists the matches and suggests no pattern, because regions have none."""
    with pytest.raises(UsageError, match=r"2 regions: eu-central-1, eu-central-2") as caught:
        NAMES.region("eu-central")
    assert "*" not in caught.value.hint


@given(st.lists(st.from_regex(r"[a-z]{1,3}/[a-z.]{1,3}", fullmatch=True), min_size=1, max_size=8, unique=True))
def test_a_full_name_is_never_ambiguous(names: list[str]) -> None:
    """The full name of a target means that target, whatever others exist."""
    known = Names(regions=tuple(names), targets=tuple(target(name) for name in names))
    assert [known.target(name) for name in names] == names
    assert [known.region(name) for name in names] == names


NO_AGENT = Absence(region="eu", sentence="no samples from eu: start an agent there")
TOGETHER = "in this selection, but their vantages have delivered others"


def elsewhere(region: str) -> Absence:
    """A region whose vantage has delivered samples, but none of the selection."""
    return Absence(
        region=region, sentence=f"no samples from {region} in this selection, but {region}-1 there has delivered others"
    )


@pytest.mark.parametrize(
    ("missing", "sentences"),
    [
        ((elsewhere("us"),), [elsewhere("us").sentence]),
        ((elsewhere("us"), elsewhere("sg")), [f"no samples from us, sg {TOGETHER}"]),
        (tuple(map(elsewhere, "abcde")), [f"no samples from a, b, c, 2 more {TOGETHER}"]),
        ((elsewhere("us"), NO_AGENT), [elsewhere("us").sentence, NO_AGENT.sentence]),
        ((NO_AGENT,) * 5, [NO_AGENT.sentence] * 3 + ["and none from 2 more regions"]),
    ],
)
def test_regions_with_the_same_reason_share_a_sentence(missing: tuple[Absence, ...], sentences: list[str]) -> None:
    """Regions that all have samples elsewhere are named together; other reasons are stated for up to three regions."""
    assert _sentences(missing) == sentences
