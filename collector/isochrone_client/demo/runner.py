"""The demo from top to bottom: a simulated world, a collector on an embedded database, agents in three regions, and
after a while what they found, beside what the world knows to be true. After 75 seconds a provider gets slower from one
region for three minutes, and the route that begins with it moves there and nowhere else.
"""

import importlib.util
import sys
import time
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.address import DEFAULT_COLLECTOR, default_identity_path
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.demo import ground_truth
from isochrone_client.demo.database import database_folder
from isochrone_client.demo.moves import Moves
from isochrone_client.demo.processes import Processes, run
from isochrone_client.demo.program import called
from isochrone_client.demo.run_folder import scratch_folder
from isochrone_client.demo.scenario import (
    BASELINE,
    HOST,
    STANDS,
    SUGGESTIONS,
    TROUBLE,
    World,
    plan_document,
    read_world,
)
from isochrone_client.errors import ClientError, DemoError
from isochrone_client.pages import differentials, leaderboard, route_changes
from isochrone_client.route_tables import gathered
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.model import SECOND_US

_TELL_EVERY_SECONDS = 5
_NEEDED = ("psycopg", "alembic", "numpy", "pydantic", "starlette", "uvicorn", "yaml")


def play(*, seconds: float | None, folder: Path | None, keep: bool) -> None:
    """Run the demo for so many seconds, or until Ctrl-C, and show what came out. Raises `ClientError`."""
    _require_extras()
    with (
        scratch_folder(folder, keep=keep) as place,
        database_folder(place) as data,
        Processes(place / "logs") as processes,
    ):
        world = read_world(run("isochrone_sim", "world", "--output", "json"))
        _tell(f"a simulated world of {len(world.models)} models, seen from {len(STANDS)} regions")
        collector = _start_collector(processes, data, world)
        # After the collector, which may take its time: the trouble is to come so long after the first probe.
        endpoints = _start_world(processes)
        started_at = now_at()
        _start_agents(processes, place, endpoints, collector)
        _suggest(collector)
        with ObservatoryClient(collector) as client:
            _watch(processes, client, seconds, started_at)
            processes.stop([stand.vantage for stand in STANDS])
            _show(client, world, Selection(window=Window(from_at=started_at, until_at=now_at() + SECOND_US)))


def _require_extras() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        hint = "pip install 'isochrone[collector,embedded]'"
        raise DemoError("the demo runs a collector, which is not installed here", hint=hint)


def _start_world(processes: Processes) -> dict[str, str]:
    listening = [word for stand in STANDS for word in ("--listen", f"{stand.region}=127.0.0.1:0")]
    trouble = map(str, (TROUBLE.added_ms, TROUBLE.after_seconds, TROUBLE.lasting_seconds))
    episode = ("--episode", TROUBLE.provider, TROUBLE.region, *trouble)
    ready = processes.start_ready("simulator", "isochrone_sim", "serve", *listening, *episode)
    endpoints: dict[str, str] = ready["endpoints"]
    return endpoints


def _start_collector(processes: Processes, folder: Path, world: World) -> str:
    data = ("--data-dir", str(folder))
    try:
        # Where `isochrone` asks unless told otherwise, if nobody else is there.
        ready = processes.start_ready("collector", "isochrone_collector", "serve", "--listen", DEFAULT_COLLECTOR, *data)
    except DemoError:
        anywhere = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", *data)
        ready = processes.start_ready("collector", "isochrone_collector", "serve", *anywhere)
    _tell(f"a collector at {ready['listen']} on an embedded PostgreSQL")
    if "http" in ready:
        _tell(f"its tables and questions over HTTP at {ready['http']}")
    plan = folder.with_name("plan.yaml")
    plan.write_text(plan_document(world))
    run("isochrone_collector", "apply", str(plan), "--collector", ready["listen"], "--yes")
    return str(ready["listen"])


def _start_agents(processes: Processes, place: Path, endpoints: dict[str, str], collector: str) -> None:
    for stand in STANDS:
        port = endpoints[stand.region].rsplit(":", 1)[1].split("/")[0]
        options = ["--vantage", stand.vantage, "--region", stand.region, "--collector", collector]
        options += ["--data-dir", str(place / stand.vantage), "--concurrency", "16"]
        options += ["--connect-to", f"{HOST}:80:127.0.0.1:{port}"]
        processes.start(stand.vantage, "isochrone_agent", "run", *options)
    _tell("agents in " + ", ".join(stand.region for stand in STANDS))


def _watch(processes: Processes, client: ObservatoryClient, seconds: float | None, started_at: int) -> None:
    until = "Ctrl-C shows the results" if seconds is None else f"results in {seconds:g} s, or with Ctrl-C at once"
    _tell(f"probing; {until}")
    _tell(
        f"{TROUBLE.after_seconds} s from now {TROUBLE.provider} takes {TROUBLE.added_ms} ms longer from "
        f"{TROUBLE.region}, for {TROUBLE.lasting_seconds} s"
    )
    moves = Moves(client, started_at=started_at)
    try:
        while seconds is None or now_at() - started_at < seconds * SECOND_US:
            left = _TELL_EVERY_SECONDS if seconds is None else seconds - (now_at() - started_at) / SECOND_US
            time.sleep(max(0.0, min(_TELL_EVERY_SECONDS, left)))
            processes.check()
            _tell(_progress(client, started_at))
            for sentence in moves.news():
                _tell(sentence)
    except KeyboardInterrupt:
        _tell("stopping")


def _progress(client: ObservatoryClient, started_at: int) -> str:
    window = Window(from_at=started_at, until_at=now_at())
    coverage = client.get_coverage(Selection(window=window)).coverage
    recorded = sum(row.recorded for row in coverage)
    fine = sum(row.outcomes.get("ok", 0) for row in coverage)
    return (
        f"{round((now_at() - started_at) / SECOND_US)} s: {recorded} samples stored, {recorded - fine} of them not ok"
    )


def _show(client: ObservatoryClient, world: World, selection: Selection) -> None:
    board = client.get_leaderboard(selection)
    answer = client.get_differentials(selection, baseline=BASELINE, metric=Metric.TTFT)
    rows = differentials.arranged(answer, sort="shift", only=None)
    terminal.write(leaderboard.page(board), "table")
    click.echo()
    terminal.write(differentials.page(answer, rows, metric=Metric.TTFT, now_at=now_at()), "table")
    click.echo()
    terminal.write(route_changes.page(gathered(client, (), ""), now_at=now_at()), "table")
    click.echo()
    terminal.write(ground_truth.page(ground_truth.compared(answer, world)), "table")
    if not rows:
        raise ClientError("nothing was measured", hint=f"run it longer: {_called('isochrone demo --for 60s')}")
    _tell("a demo without --for runs until Ctrl-C; while one does, ask it more:")
    for line in SUGGESTIONS:
        click.echo(f"    {_called(line)}", err=True)


def _suggest(collector: str) -> None:
    """What to ask meanwhile, to be copied into another terminal."""
    elsewhere = (
        "" if collector == DEFAULT_COLLECTOR and not default_identity_path().exists() else f" --collector {collector}"
    )
    _tell("while it runs, ask it from another terminal:")
    for line in SUGGESTIONS:
        click.echo(f"    {_called(line)}{elsewhere}", err=True)


def _called(line: str) -> str:
    return called(line, python=Path(sys.executable), here=Path.cwd())


def _tell(sentence: str) -> None:
    click.echo(f"· {sentence}", err=True)
