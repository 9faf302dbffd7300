"""The demo from top to bottom: a simulated world, a collector on an embedded database, agents in three regions, and
after a while what they found, beside what the world knows to be true.
"""

import importlib.util
import time
from pathlib import Path

import click

from isochrone_client import terminal
from isochrone_client.client import ObservatoryClient
from isochrone_client.clock import now_at
from isochrone_client.demo import truth
from isochrone_client.demo.processes import Processes, run
from isochrone_client.demo.scratch import scratch_folder
from isochrone_client.demo.stage import BASELINE, HOST, STANDS, World, plan_document, read_world
from isochrone_client.errors import ClientError, DemoError
from isochrone_client.pages import differentials, leaderboard
from isochrone_wire.answers import Metric, Selection, Window
from isochrone_wire.model import SECOND_US

_TELL_EVERY_SECONDS = 5
_NEEDED = ("psycopg", "alembic", "numpy", "pydantic", "yaml")


def play(*, seconds: float | None, folder: Path | None, keep: bool) -> None:
    """Run the demo for so many seconds, or until Ctrl-C, and show what came out. Raises `ClientError`."""
    _require_extras()
    with scratch_folder(folder, keep=keep) as place, Processes(place / "logs") as processes:
        world = read_world(run("isochrone_sim", "world", "--output", "json"))
        _tell(f"a simulated world of {len(world.models)} models, seen from {len(STANDS)} regions")
        endpoints = _start_world(processes)
        collector = _start_collector(processes, place, world)
        started_at = now_at()
        _start_agents(processes, place, endpoints, collector)
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
    endpoints: dict[str, str] = processes.start_ready("simulator", "isochrone_sim", "serve", *listening)["endpoints"]
    return endpoints


def _start_collector(processes: Processes, place: Path, world: World) -> str:
    options = ("--listen", "127.0.0.1:0", "--data-dir", str(place / "collector"))
    ready = processes.start_ready("collector", "isochrone_collector", "serve", *options)
    _tell(f"a collector at {ready['listen']} on an embedded PostgreSQL")
    plan = place / "plan.yaml"
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
    try:
        while seconds is None or now_at() - started_at < seconds * SECOND_US:
            left = _TELL_EVERY_SECONDS if seconds is None else seconds - (now_at() - started_at) / SECOND_US
            time.sleep(max(0.0, min(_TELL_EVERY_SECONDS, left)))
            processes.check()
            _tell(_progress(client, started_at))
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
    terminal.write(truth.page(truth.compared(answer, world)), "table")
    if not rows:
        raise ClientError("nothing was measured", hint="run it longer: isochrone demo --for 60s")


def _tell(sentence: str) -> None:
    click.echo(f"· {sentence}", err=True)
