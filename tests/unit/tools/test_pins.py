"""The command that writes hashes and digests, with registries that answer and that do not."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import pins

LINE = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; [^@/]+?)?(?: +--hash=sha256:[0-9a-f]{64})+")
DIGEST = f"sha256:{'a1' * 32}"
PINNED = f"BASE_IMAGE=python:3.13-slim@{DIGEST}\nPOSTGRES_IMAGE=postgres:18@{DIGEST}\n"
WRITES = '#!/bin/sh\nfor word; do :; done\necho "click==1 --hash=sha256:0" > "$word"\n'
FAILS = "#!/bin/sh\necho 'no such host' >&2\nexit 1\n"


def programs(monkeypatch: pytest.MonkeyPatch, folder: Path, **texts: str) -> None:
    (folder / "bin").mkdir()
    (folder / "deploy").mkdir()
    for name, text in texts.items():
        program = folder / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"))


def test_what_registries_state_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each file of requirements and each image is asked for; digests stand behind the tags."""
    programs(monkeypatch, tmp_path, uv=WRITES, docker=f"#!/bin/sh\necho {DIGEST}\n")
    assert pins.main(tmp_path) == 0
    assert (tmp_path / "deploy" / "images.env").read_text() == PINNED
    written = {path.name for path in (tmp_path / "deploy").glob("requirements-*.txt")}
    assert written == {f"requirements-{role}.txt" for role in pins.REQUIREMENTS}


@pytest.mark.parametrize(
    ("docker", "reason"),
    [
        (FAILS, "no such host"),
        ("#!/bin/sh\necho sha256:12\n", "it states no digest"),
        ("#!/bin/sh\n", "it states no digest"),
        (None, "docker is not installed"),
    ],
)
def test_what_no_registry_states_is_left_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], docker: str | None, reason: str
) -> None:
    """No digest is made up: earlier ones stay, and the exit code is 1."""
    programs(monkeypatch, tmp_path, uv=FAILS, **({"docker": docker} if docker else {}))
    assert pins.main(tmp_path) == 1
    said = capsys.readouterr().err
    assert f"no registry answers for postgres:18 ({reason})" in said
    assert "deploy/requirements-agent.txt is as before: no registry answers (no such host)" in said
    assert list((tmp_path / "deploy").iterdir()) == []
    file = tmp_path / "deploy" / "images.env"
    file.write_text(PINNED)
    assert pins.main(tmp_path) == 1
    assert file.read_text() == PINNED


@pytest.mark.parametrize("role", pins.REQUIREMENTS)
def test_requirements_have_hashes_and_the_versions_of_constraints(role: str) -> None:
    """Each package has a hash, no address, and the version of constraints.txt; what the project requires is there."""
    text = (pins.ROOT / "deploy" / f"requirements-{role}.txt").read_text().replace(" \\\n", "")
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    pinned = {match[1]: match[2] for match in found if match}
    assert len(pinned) == len(found) > 0
    lines = (pins.ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines)
    versions: dict[str, str] = {canonicalize_name(name): version for name, version in pairs}
    assert {name for name, version in pinned.items() if versions.get(name, version) != version} == set()
    project = tomllib.loads((pins.ROOT / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    extras = [optional[extra] for extra in pins.REQUIREMENTS[role] if extra in optional]
    wanted = [project["project"]["dependencies"], *extras] if extras else [project["build-system"]["requires"]]
    assert {canonicalize_name(Requirement(one).name) for part in wanted for one in part} <= {*pinned}
