"""Why there are no samples, in as few words as the regions allow."""

import pytest

from isochrone_client.absence import _sentences
from isochrone_wire.answers import Absence

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
