import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from isochrone_common.address import Address, parse_address
from isochrone_sim.certificates import Certificate
from isochrone_sim.errors import SettingsError, WorldError
from isochrone_sim.faults import fault_models
from isochrone_sim.world import Episode, World, default_world
from isochrone_sim.worldfile import parse_world
from isochrone_wire.text import did_you_mean

DEFAULT_LISTEN = "127.0.0.1:8080"
_DEFAULT_PORT = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One listening address per client region; port 0 selects a free port. `truth_file` is a file to append records to.
    With a `certificate`, the sockets use TLS.
    """

    world: World
    listens: dict[str, Address]
    api_key: str | None = field(default=None, repr=False)
    certificate: Certificate | None = None
    truth_file: Path | None = None
    log_requests: bool = False


def gather_world(path: Path | None, *, faults: bool = False) -> World:
    """Return the world of a file, or the default world; `faults` adds one model per fault. Raises `WorldError`."""
    world = read_world(path) if path else default_world()
    return world.with_models(fault_models()) if faults else world


def read_world(path: Path) -> World:
    """Read the world of a JSON or TOML file. Raises `WorldError` with all problems of the file."""
    hint = "see `isochrone-sim world --example`"
    try:
        text = path.read_text("utf-8")
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WorldError(f"cannot read {path}: {reason}", hint=hint) from error
    if not isinstance(document, dict):
        raise WorldError(f"cannot read {path}: not a JSON or TOML object", hint=hint)
    try:
        return parse_world(document, text=text)
    except WorldError as error:
        raise WorldError(f"{path} is not a valid world:\n{error}", hint=hint) from error


def parse_listens(texts: Iterable[str], world: World, *, allow_remote: bool = False) -> dict[str, Address]:
    """Parse `REGION=HOST:PORT` or `HOST:PORT` (baseline region) into addresses by region. Raises `SettingsError`."""
    listens: dict[str, Address] = {}
    for text in texts:
        region, separator, address = text.rpartition("=")
        region = known_region(region, world) if separator else world.baseline
        if region in listens:
            raise SettingsError(f"{region} has two listening addresses", hint="name another region: REGION=HOST:PORT")
        listens[region] = _address(address, allow_remote=allow_remote)
    return listens


def parse_certificate(chain: Path | None, key: Path | None, *, self_signed: bool) -> Certificate | None:
    """Return the certificate given by the options, or `None`. Raises `SettingsError` if the options conflict."""
    if (chain is None) != (key is None):
        raise SettingsError("--tls-cert and --tls-key must be given together", hint="give both, or --self-signed")
    if self_signed and chain is not None:
        raise SettingsError("--self-signed cannot be combined with --tls-cert", hint="omit --tls-cert and --tls-key")
    return Certificate(chain=chain, key=key) if chain and key else None


def with_episodes(world: World, values: Iterable[tuple[str, str, float | str, float, float]], *, now_at: int) -> World:
    """Return the world with more episodes: (provider, region, added milliseconds or fault, start in seconds from now,
    duration in seconds). Raises `SettingsError` for an unknown region or provider.
    """
    providers = sorted({model.provider for model in world.models.values()})
    episodes = list(world.episodes)
    for provider, region, what, after_s, lasting_s in values:
        if provider not in providers:
            raise SettingsError(f"unknown provider {provider!r}", hint=f"known: {', '.join(providers)}")
        episode = Episode(
            provider=provider,
            region=known_region(region, world),
            from_at=now_at + round(after_s * 1_000_000),
            until_at=now_at + round((after_s + lasting_s) * 1_000_000),
        )
        if isinstance(what, str):
            episodes.append(replace(episode, fault=what))
        else:
            episodes.append(replace(episode, added_us=round(what * 1_000)))
    return replace(world, episodes=tuple(episodes))


def with_round_trips(world: World, values: Iterable[tuple[str, float]]) -> World:
    """Return the world with real round trips: (region, milliseconds). Raises `SettingsError` for an unknown region."""
    return replace(world, round_trips_us={known_region(region, world): round(ms * 1_000) for region, ms in values})


def known_region(name: str, world: World) -> str:
    """Return `name` if the world has such a region. Raises `SettingsError` with the nearest name."""
    if name in world.regions:
        return name
    sentence = f"unknown region {name!r}{did_you_mean(name, world.regions)}"
    raise SettingsError(sentence, hint=f"known: {', '.join(world.regions)}")


def _address(text: str, *, allow_remote: bool) -> Address:
    try:
        address = parse_address(text, default_port=_DEFAULT_PORT)
    except ValueError as error:
        raise SettingsError(str(error), hint="isochrone-sim serve --listen 127.0.0.1:8080") from error
    if not (address.is_loopback or allow_remote):
        hint = "--allow-remote accepts other machines; the simulator is meant for tests, not for public networks"
        raise SettingsError(f"{address} can be reached from other machines", hint=hint)
    return address
