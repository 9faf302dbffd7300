"""World files: what is right is taken, and everything that is wrong is told at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from isochrone_sim.errors import WorldError
from isochrone_sim.settings import gather_world, read_world
from isochrone_sim.world import Source
from isochrone_sim.worldfile import EXAMPLE, parse_world

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
        ({"models": [MODEL], "sed": 1}, "sed: unknown key, did you mean 'seed'?"),
        (world_with(token_per_second=1), "models[0].token_per_second: unknown key, did you mean 'tokens_per_second'?"),
        ({}, "models: missing"),
        ({"models": []}, "models: [] must be a list of at least one model"),
        ({"models": [{"id": "m"}]}, "models[0].ttft_ms: missing"),
        ({"models": ["m"]}, "models[0].id: missing"),
        (world_with(ttft_ms="fast"), "models[0].ttft_ms: 'fast' must be a number from 1"),
        (world_with(ttft_ms=True), "models[0].ttft_ms: True must be a number"),
        (world_with(tokens_per_second=0), "models[0].tokens_per_second: 0 must be a number from 0.1"),
        (world_with(answer_tokens=1.5), "models[0].answer_tokens: 1.5 must be a whole number"),
        (world_with(reasoning=1), "models[0].reasoning: 1 must be true or false"),
        (world_with(fault="stal"), "models[0].fault: 'stal' is unknown, did you mean 'stall'?"),
        (world_with(dialect="openai"), "models[0].dialect: 'openai' is unknown"),
        (world_with(offsets_ms=[1]), "models[0].offsets_ms: [1] must be a table"),
        (world_with(offsets_ms={"sgg": 5}), "m: 'sgg' is not one of the regions, did you mean 'sg'?"),
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
