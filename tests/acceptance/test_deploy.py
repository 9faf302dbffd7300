"""The road to a VM: what lies in deploy/ is what systemd, cloud-init and a shell accept, and it installs."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from isochrone_agent.cli import options as agent_options
from isochrone_collector.cli.main import cli as collector

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.rglob("*.service"))
SCRIPTS = [path for path in (*(ROOT / ".ci").iterdir(), *DEPLOY.glob("*.sh")) if path.read_bytes().startswith(b"#!")]
# systemd's own scale: 0 is locked away, 10 is root without limits; a unit of Debian's has about 9.
MOST_EXPOSED = 2.0
OVERLAID = ("/opt", "/etc", "/usr/local/bin", "/var/lib")


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    words = [str(part) for part in command]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=300, check=False, env=os.environ | more, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say of it, with the programs where a checkout has them."""
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/isochrone/bin", str(Path(sys.executable).parent)))
    done = run(tool("systemd-analyze"), "verify", "--man=no", here)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_unit_is_hardened(unit: Path) -> None:
    """Systemd's own scale finds little that the service could do beside its work."""
    done = run(tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_unit_leaves_no_secrets_and_takes_no_more_memory(unit: Path) -> None:
    """No core dump has a provider key or a credential, and a service that runs on has a limit of memory."""
    text = unit.read_text()
    assert "\nLimitCORE=0\n" in text
    assert "Type=oneshot" in text or re.search(r"^MemoryMax=\d+[MG]$", text, re.MULTILINE)


def test_cloud_init_takes_the_user_data() -> None:
    """`cloud-init schema` finds it valid."""
    done = run(tool("cloud-init"), "schema", "--config-file", DEPLOY / "agent" / "cloud-init.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("key_command", "line"), [("printf sk-1", "OPENAI_API_KEY=sk-1\n"), ("true", ""), ("no-such-command", "")]
)
def test_a_vm_fetches_its_key(key_command: str, line: str, tmp_path: Path) -> None:
    """A command of the user data prints the key to the agent's environment; without one the VM joins all the same."""
    done, content = boot(tmp_path, key_command)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "installed").read_text() == "agent ./isochrone.whl\n"
    assert (tmp_path / "etc" / "isochrone" / "agent.env").read_text() == content + line
    assert "enable --now --no-block isochrone-agent-join.service" in (tmp_path / "units").read_text()
    units = {path.name for path in (tmp_path / "etc" / "systemd" / "system").iterdir()}
    assert units == {path.name for path in (DEPLOY / "agent").glob("*.service")}


@pytest.mark.parametrize("changed", ["install.sh", "isochrone.whl", "isochrone-agent.service", "SHA256SUMS"])
def test_a_vm_runs_nothing_that_differs(changed: str, tmp_path: Path) -> None:
    """A file that was changed where the VM fetches it, the list of checksums too, ends the first boot unrun."""
    done, _ = boot(tmp_path, "true", changed=changed)
    assert done.returncode != 0
    assert changed in done.stderr + done.stdout
    assert not (tmp_path / "installed").exists()
    assert not (tmp_path / "units").exists()


def boot(folder: Path, key_command: str, *, changed: str = "") -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the user data's script below a folder; return its result, and the environment of the agent before."""
    served, programs = folder / "served", folder / "programs"
    environment = folder / "etc" / "isochrone" / "agent.env"
    system = folder / "etc" / "systemd" / "system"
    for path in (served, programs, environment.parent, folder / "run" / "isochrone", system):
        path.mkdir(parents=True)
    for unit in (DEPLOY / "agent").glob("*.service"):
        shutil.copy(unit, served)
    (served / "install.sh").write_text(f'echo "$@" > {folder}/installed\n')
    (served / "isochrone.whl").touch()
    sums = "".join(f"{checksum(path)}  {path.name}\n" for path in sorted(served.iterdir()))
    (served / "SHA256SUMS").write_text(sums)
    filled = {"<key command>": key_command, "<checksum>": checksum(served / "SHA256SUMS"), "<files>": "http://h/files"}
    if changed:
        with (served / changed).open("a") as file:
            file.write(f"{'0' * 64}  other\n")
    text = (DEPLOY / "agent" / "cloud-init.yaml").read_text()
    for place, value in filled.items():
        text = text.replace(place, value)
    files = {Path(file["path"]).name: file for file in yaml.safe_load(text)["write_files"]}
    assert {files[name]["permissions"] for name in ("agent.env", "join-token")} == {"0600"}
    environment.write_text(files["agent.env"]["content"])
    # curl … URL --output FILE
    (programs / "curl").write_text(f'#!/bin/sh\nfor word; do :; done\ncp "{served}/$word" "$word"\n')
    (programs / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {folder}/units\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    script = re.sub(r"/(etc|run)/", rf"{folder}/\1/", files["set-up.sh"]["content"])
    return run("sh", "-c", script, PATH=f"{programs}:{os.environ['PATH']}"), files["agent.env"]["content"]


def checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script: Path) -> None:
    """Every script of the project passes."""
    done = run(tool("shellcheck"), script)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_files_name_is_there() -> None:
    """Compose builds what exists, images copy all packages, and every ISOCHRONE_ variable is one of a command."""
    compose = yaml.safe_load((DEPLOY / "collector" / "compose.yaml").read_text())
    built = compose["services"]["collector"]["build"]
    assert (DEPLOY / "collector" / built["context"] / built["dockerfile"]).resolve().is_file()
    image = (DEPLOY / "Dockerfile").read_text()
    assert f"AS {built['target']}\n" in image
    copied = {name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied), copied
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {str(Path(package).parent) for package in packages["packages"]} <= copied
    texts = [path.read_text() for path in DEPLOY.rglob("*") if path.suffix in {".service", ".yaml"}]
    named = {name for text in [*texts, image] for name in re.findall(r"ISOCHRONE_[A-Z_]+", text)}
    assert named - known_variables() == set()


def test_debians_compose_takes_the_file() -> None:
    """The Compose of Debian 12, which is older than Docker's own, accepts it and has all of its services."""
    given = dict.fromkeys(("POSTGRES_IMAGE", "BASE_IMAGE"), f"image@sha256:{'0' * 64}") | {
        "POSTGRES_PASSWORD": "secret"
    }
    file = DEPLOY / "collector" / "compose.yaml"
    done = run(tool("docker-compose"), "--file", file, "config", "--services", **given)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["collector", "database"]), done.stderr


def test_no_image_is_taken_by_its_tag(tmp_path: Path) -> None:
    """Every image is one of deploy/images.env, whose entries have digests, or states that its digest is missing."""
    pinned = DEPLOY / "images.env"
    lines = pinned.read_text().splitlines() if pinned.exists() else []
    assert all(re.fullmatch(r"[A-Z_]+=\S+@sha256:[0-9a-f]{64}", line) for line in lines)
    compose = (DEPLOY / "collector" / "compose.yaml").read_text()
    services = yaml.safe_load(compose)["services"].values()
    named = [service["image"] for service in services if "image" in service]
    named += [service["build"]["args"]["BASE"] for service in services if "build" in service]
    assert all(re.fullmatch(r"\$\{\w+_IMAGE:\?run make pins, .*\}", name) for name in named), named
    routes = (DEPLOY / "kubernetes" / "routes.yaml").read_text()
    assert [image.partition("@")[2] for image in re.findall(r"image: (\S+)", routes)] == ["sha256:<digest>"]
    image = (DEPLOY / "Dockerfile").read_text()
    stages = set(re.findall(r" AS (\w[\w-]*)", image))
    assert set(re.findall(r"^FROM (\S+)", image, re.MULTILINE)) - stages == {"${BASE}"}
    assert re.findall(r"^ARG BASE(.*)", image, re.MULTILINE) == ["", ""]
    (check,) = re.findall(r"^RUN (case .*)", image, re.MULTILINE)
    for base, refused in (("", True), ("python:3.13-slim", True), ("python:3.13-slim@sha256:0", False)):
        done = run("sh", "-c", check, BASE=base)
        assert (done.returncode, "has no digest; run make pins" in done.stderr) == (int(refused), refused)


def known_variables() -> set[str]:
    """Return the environment variables of the options of the agent's `run` and of the collector's commands."""
    probe = click.Command("run", params=[])
    params = list(getattr(agent_options.running(lambda: None), "__click_params__", probe.params))
    context = click.Context(collector)
    commands = [collector.get_command(context, name) for name in collector.list_commands(context)]
    params += [param for command in commands if command for param in command.params]
    return {str(param.envvar) for param in params if param.envvar}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_install_sh_installs_an_agent(wheel: Path, tmp_path: Path) -> None:
    """With the system's folders overlaid, the script makes user, folders and command; a second run is an upgrade."""
    if os.geteuid() != 0:
        pytest.skip("overlaying the system's folders needs root")
    overlays = "".join(
        f"mkdir -p up{n} work{n}; mount -t overlay overlay -o lowerdir={place},upperdir=up{n},workdir=work{n} {place}\n"
        for n, place in enumerate(OVERLAID)
    )
    script = f"""set -e
mount -t tmpfs tmpfs {tmp_path}
cd {tmp_path}
{overlays}
sh {DEPLOY}/install.sh agent {wheel}
sh {DEPLOY}/install.sh agent {wheel}
stat --format '%a %U %n' /var/lib/isochrone-agent /etc/isochrone
"""
    done = run("unshare", "--mount", "sh", "-c", script)
    if "unshare failed" in done.stderr or "No matching distribution" in done.stderr:
        pytest.skip(f"not on this machine: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    assert "700 isochrone /var/lib/isochrone-agent\n750 root /etc/isochrone\n" in done.stdout
    assert done.stdout.count("isochrone-agent 0.") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage"),
        (["nonsense"], "usage"),
        (["agent"], "'' is not a file; usage"),
        (["agent", "isochrone"], "'isochrone' is not a file; usage"),
        (["agent", __file__, "none.txt"], "'none.txt' is not a file; usage"),
    ],
)
def test_install_sh_says_how_it_is_used(words: list[str], said: str) -> None:
    """Without a role that it knows, a wheel and hashes it changes nothing and exits 2; no name goes to a registry."""
    done = run("sh", DEPLOY / "install.sh", *words)
    assert (done.returncode, said in done.stderr) == (2, True)
