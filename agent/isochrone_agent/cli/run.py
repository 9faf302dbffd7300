import asyncio
from pathlib import Path
from typing import Any

import click

from isochrone_common.cli.service import LogFormat, set_up_logs

# `logs` comes first: it imports structlog without rich.
# isort: split

from isochrone_agent import runner
from isochrone_agent.cli import options
from isochrone_agent.settings import Settings, load_settings
from isochrone_common.cli.command_line import example, log_format_option
from isochrone_common.cli.service import stop_event

_EXAMPLE = "isochrone-agent run --vantage sg-1 --region ap-southeast-1 --collector 127.0.0.1:4600"


@click.command("run", epilog=example(_EXAMPLE))
@options.running
@log_format_option
def command(*, settings_file: Path | None, log_format: LogFormat, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Probe the collector's plan from this region until stopped, and deliver every sample.

    Samples are on disk before they are sent and stay there until the collector has committed them, so neither a lost
    connection nor a crash loses any. SIGTERM, Ctrl-C and a closed terminal stop the agent cleanly. Each option also
    has an environment variable, such as ISOCHRONE_VANTAGE for --vantage.
    """
    set_up_logs(log_format)
    asyncio.run(_until_signalled(load_settings(settings_file, values)))


async def _until_signalled(settings: Settings) -> None:
    await (runner.run_standalone if settings.plan else runner.run)(settings, stop_event())
