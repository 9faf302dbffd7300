"""Options and world files: what is wrong is reported with a hint, all of it at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from isochrone_common.address import Address
from isochrone_sim.errors import SettingsError, WorldError
from isochrone_sim.settings import Settings, gather_world, parse_listens, read_world, with_episodes, with_round_trips
from isochrone_sim.world import Episode, Source, default_world
from isochrone_sim.worldfile import EXAMPLE, parse_world

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
        (["us-east-1=127.0.0.1:0"], "unknown region 'us-east-1'; did you mean 'us-east-2'?"),
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


MODEL = {"id": "m", "provider": "p", "ttft_ms": 100, "tokens_per_second": 50}


def world_with(**changed: Any) -> dict[str, Any]:
    return {"regions": {"us-east-2": "Ohio", "sg": "Singapore"}, "models": [MODEL | changed]}


def test_the_example_is_a_world() -> None:
    """What `--example` shows is accepted, and means what it says."""
    world = parse_world(EXAMPLE)
    swift, thinker = world.models.values()
    assert (swift.ttft_us, swift.offsets["ap-southeast-1"].us, swift.jitter_us) == (180_000, -30_000, 1_000)
    assert swift.offsets["ap-southeast-1"].source is Source.CHOSEN
    assert (thinker.title, thinker.fault, thinker.fault_share, thinker.reasoning) == ("thinker-1", "cut", 0.05, True)
    assert (world.seed, world.baseline, list(world.regions)) == (7, "us-east-2", ["us-east-2", "ap-southeast-1"])


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"models": [MODEL], "sed": 1}, "sed: unknown key; did you mean 'seed'?"),
        (world_with(token_per_second=1), "models[0].token_per_second: unknown key; did you mean 'tokens_per_second'?"),
        ({}, "models: missing"),
        ({"models": []}, "models: [] must be a list of at least one model"),
        ({"models": [{"id": "m"}]}, "models[0].ttft_ms: missing"),
        ({"models": ["m"]}, "models[0].id: missing"),
        (world_with(ttft_ms="fast"), "models[0].ttft_ms: 'fast' must be a number from 1"),
        (world_with(ttft_ms=True), "models[0].ttft_ms: True must be a number"),
        (world_with(tokens_per_second=0), "models[0].tokens_per_second: 0 must be a number from 0.1"),
        (world_with(answer_tokens=1.5), "models[0].answer_tokens: 1.5 must be a whole number"),
        (world_with(reasoning=1), "models[0].reasoning: 1 must be true or false"),
        (world_with(fault="stal"), "models[0].fault: 'stal' is unknown; did you mean 'stall'?"),
        (world_with(dialect="openai"), "models[0].dialect: 'openai' is unknown"),
        (world_with(offsets_ms=[1]), "models[0].offsets_ms: [1] must be a table"),
        (world_with(offsets_ms={"sgg": 5}), "m: 'sgg' is not one of the regions; did you mean 'sg'?"),
        (world_with(offsets_ms={"sg": -100}), "m: from sg, the first token would precede the request"),
        ({"models": [MODEL, MODEL]}, "models: duplicate id 'm'"),
        ({"models": [MODEL], "regions": {"a": "A"}}, "baseline: 'us-east-2' is not one of the regions"),
        ({"models": [MODEL], "regions": {}}, "regions: {} must be a table"),
        ({"models": [MODEL], "load_amplitude": 2}, "load_amplitude: 2 must be a number from 0 to 0.5"),
    ],
)
def test_each_problem_has_a_sentence(document: dict[str, Any], sentence: str) -> None:
    """Where, what, and what was probably meant."""
    with pytest.raises(WorldError) as caught:
        parse_world(document)
    assert sentence in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    """An author corrects a file once, not once per problem."""
    with pytest.raises(WorldError) as caught:
        parse_world({"sed": 1, "models": [MODEL | {"ttft_ms": 0}, {"id": "n", "prvider": "p"}]})
    assert [line.strip().split(":")[0] for line in str(caught.value).splitlines()] == [
        "sed",
        "models[0].ttft_ms",
        "models[1].prvider",
        "models[1].provider",
        "models[1].ttft_ms",
        "models[1].tokens_per_second",
    ]


def test_an_unknown_key_has_its_line(tmp_path: Path) -> None:
    """In a file, an unknown key is told with the line it stands in."""
    path = tmp_path / "world.json"
    path.write_text('{\n "models": [],\n "sed": 1\n}')
    with pytest.raises(WorldError, match=r"sed: unknown key in line 3"):
        read_world(path)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [("w.json", "{", "cannot read"), ("w.json", "[]", "not a JSON or TOML object"), ("w.toml", "=", "cannot read")],
)
def test_files_that_are_none(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    """A file that cannot be parsed is an error with its path and a hint."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(WorldError, match=sentence) as caught:
        read_world(path)
    assert str(path) in str(caught.value)
    assert "--example" in caught.value.hint


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """So is one that is not there."""
    with pytest.raises(WorldError, match="No such file"):
        read_world(tmp_path / "none.json")


def test_toml_and_json_are_the_same(tmp_path: Path) -> None:
    """Either notation gives the same world."""
    as_json, as_toml = tmp_path / "w.json", tmp_path / "w.toml"
    as_json.write_text(json.dumps({"seed": 3, "models": [MODEL]}))
    as_toml.write_text('seed = 3\n[[models]]\nid = "m"\nprovider = "p"\nttft_ms = 100\ntokens_per_second = 50\n')
    assert gather_world(as_json) == gather_world(as_toml)


def test_faults_are_added_on_demand(tmp_path: Path) -> None:
    """`--faults` adds its models to any world."""
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"models": [MODEL]}))
    assert list(gather_world(path).models) == ["m"]
    assert {"m", "fault-stall"} <= set(gather_world(path, faults=True).models)
