"""`make chaos`: kill processes at random for a while and check that every recorded sample arrives."""

import asyncio
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from chaos import disk, experiment, faults, report
from chaos.faults import FAULT_TYPES
from chaos.oracle import judge_all
from chaos.testbed import Scale

KINDS = click.Choice(list(FAULT_TYPES))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", type=click.IntRange(1), default=200, show_default=True, help="Number of faults.")
@click.option("--seed", type=int, help="Repeat the faults of an earlier run.  [default: a random seed]")
@click.option("--agents", type=click.IntRange(1, 5), default=3, show_default=True, help="Number of agents.")
@click.option("--collectors", type=click.IntRange(1, 5), default=2, show_default=True, help="Number of collectors.")
@click.option("--tls/--plain", default=True, show_default=True, help="Use TLS and credentials, or plain text.")
@click.option("--only", type=KINDS, multiple=True, help="Inject only this kind of fault; repeatable.")
@click.option(
    "--measure/--no-measure",
    default=True,
    show_default=True,
    help="Measure two recoveries and three reactions at the end.",
)
@click.option("--set-back", type=click.IntRange(0), default=0, help="Set the database back by so many seconds at last.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep spools, journals and logs here.")
def main(
    *,
    kills: int,
    seed: int | None,
    agents: int,
    collectors: int,
    tls: bool,
    only: tuple[str, ...],
    measure: bool,
    set_back: int,
    keep: Path | None,
) -> None:
    r"""Run real agents, collectors and PostgreSQL, inject faults, and account for every recorded sample.

    The exit code is 0 only if no sample was lost, duplicated or invented, if delivery resumed within 30 s after a black
    hole and after a promotion, and if the failure of a target led to an alert and to tables without it within three
    rounds while the clocks of collectors are 240 s apart, and after the database was set back.

    \b
    Example:
      make chaos ARGS="--kills 200"
    """
    seed = secrets.randbits(32) if seed is None else seed
    reason, kinds = disk.unavailable_reason(), list(only or FAULT_TYPES)
    for kind in [kind for kind in kinds if reason and FAULT_TYPES[kind].needs_disk]:
        kinds.remove(kind)
        click.echo(f"without {kind}: {reason}")
    parts = f"{agents} agents, {collectors} collectors, {'TLS' if tls else 'plain text'}"
    click.echo(f"seed {seed}, {kills} faults, {parts}\n{report.sentences(kinds)}\n")
    schedule = faults.schedule(seed=seed, faults=kills, agents=agents, per_second=1.0, kinds=kinds)
    scale = Scale(agents=agents, collectors=collectors, own_disks=reason is None, tls=tls)
    signal.signal(signal.SIGTERM, _interrupted)
    with _folder(keep) as folder:
        outcome = asyncio.run(
            experiment.run(folder, schedule, scale, measure=measure, echo=click.echo, set_back_s=set_back)
        )
    verdict = judge_all(outcome.evidence)
    recoveries = report.recoveries_s(outcome.measured, outcome.timeline)
    click.echo(f"\n{report.table(outcome.events, outcome.timeline)}\n")
    for sentence in outcome.unexpected_exits:
        click.echo(sentence)
    click.echo(report.result(verdict, recoveries, outcome.reactions, outcome.events))
    in_time = all(seconds <= report.MAX_RECOVERY_S for seconds in recoveries.values())
    in_time = in_time and all(one.in_time for one in outcome.reactions.values())
    sys.exit(0 if verdict.conserved and in_time else 1)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    folder = keep.resolve() if keep else Path(tempfile.mkdtemp(prefix="isochrone-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _interrupted(*_signal: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
