"""Settings: sockets by region, on this machine only unless told otherwise."""

import pytest

from isochrone_common.address import Address
from isochrone_sim.errors import SettingsError
from isochrone_sim.settings import Settings, parse_listens, with_episodes, with_round_trips
from isochrone_sim.world import Episode, default_world

WORLD = default_world()


@pytest.mark.parametrize(
    ("texts", "listens"),
    [
        (["127.0.0.1:8080"], {"us-east-2": Address("127.0.0.1", 8080)}),
        (["localhost"], {"us-east-2": Address("localhost", 8080)}),
        (["[::1]:0"], {"us-east-2": Address("::1", 0)}),
        (
            ["eu-central-1=127.0.0.1:0", "127.0.0.2:1"],
            {"eu-central-1": Address("127.0.0.1", 0), "us-east-2": Address("127.0.0.2", 1)},
        ),
    ],
)
def test_sockets_by_region(texts: list[str], listens: dict[str, Address]) -> None:
    """A socket without a region is the baseline's."""
    assert parse_listens(texts, WORLD) == listens


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["us-east-1=127.0.0.1:0"], "unknown region 'us-east-1', did you mean 'us-east-2'?"),
        (["127.0.0.1:0", "us-east-2=127.0.0.1:0"], "us-east-2 has two listening addresses"),
        (["127.0.0.1:http"], "no valid port"),
        (["=127.0.0.1:1"], "unknown region ''"),
        (["0.0.0.0:80"], "0.0.0.0:80 can be reached from other machines"),
        (["192.0.2.1:80"], "can be reached from other machines"),
        (["example.com:80"], "can be reached from other machines"),
    ],
)
def test_what_cannot_be_listened_on(texts: list[str], sentence: str) -> None:
    """Each wrong socket has a sentence and a hint."""
    with pytest.raises(SettingsError) as caught:
        parse_listens(texts, WORLD)
    assert sentence in str(caught.value)
    assert caught.value.hint


def test_strangers_may_be_let_in() -> None:
    """`--allow-remote` takes any address."""
    assert parse_listens(["0.0.0.0:80"], WORLD, allow_remote=True) == {"us-east-2": Address("0.0.0.0", 80)}


def test_round_trips_are_by_region() -> None:
    """Milliseconds become microseconds; an unknown region is an error with the nearest name."""
    found = with_round_trips(WORLD, [("eu-central-1", 85.0), ("us-east-2", 60.5)])
    assert found.round_trips_us == {"eu-central-1": 85_000, "us-east-2": 60_500}
    with pytest.raises(SettingsError, match="did you mean 'eu-central-1'"):
        with_round_trips(WORLD, [("eu-central", 85.0)])


def test_episodes_count_from_now() -> None:
    """Milliseconds and seconds from now become microseconds and instants."""
    found = with_episodes(WORLD, [("tencent", "eu-central-1", 400.0, 75.0, 180.0)], now_at=1_000_000).episodes
    episode = Episode(
        provider="tencent", region="eu-central-1", added_us=400_000, from_at=76_000_000, until_at=256_000_000
    )
    assert found == (episode,)


@pytest.mark.parametrize(
    ("provider", "region", "sentence"),
    [("tencen", "eu-central-1", "unknown provider 'tencen'"), ("tencent", "mars", "unknown region 'mars'")],
)
def test_episodes_are_of_what_there_is(provider: str, region: str, sentence: str) -> None:
    """A provider or region that is not in the world is refused."""
    with pytest.raises(SettingsError, match=sentence):
        with_episodes(WORLD, [(provider, region, 1.0, 0.0, 1.0)], now_at=0)


def test_the_key_is_not_shown() -> None:
    """Settings may be logged."""
    assert "secret" not in repr(Settings(world=WORLD, listens={}, api_key="secret"))


def test_faults_begin_and_end() -> None:
    """A fault of a provider affects one region from its start until its end; names are checked."""
    world = with_episodes(WORLD, [("tencent", "eu-central-1", "500", 10.0, 2.0)], now_at=1_000_000)
    assert world.episodes == (
        Episode(provider="tencent", region="eu-central-1", fault="500", from_at=11_000_000, until_at=13_000_000),
    )
    instants = (10_999_999, 11_000_000, 12_999_999, 13_000_000)
    assert [len(world.episodes_of("tencent", "eu-central-1", at=at)) for at in instants] == [0, 1, 1, 0]
    assert world.episodes_of("tencent", "us-east-2", at=12_000_000) == []
    assert world.episodes_of("qwen", "eu-central-1", at=12_000_000) == []
    with pytest.raises(SettingsError, match="unknown provider 'nobody'"):
        with_episodes(WORLD, [("nobody", "eu-central-1", "500", 0.0, 1.0)], now_at=0)
