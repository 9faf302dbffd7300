"""`isochrone-collector`: operate a collector. Exit codes: 0 ok, 1 failed, 2 usage, 3 unreachable."""

from typing import IO

import click

from isochrone_collector.cli.access import access
from isochrone_collector.cli.alerts import alerts
from isochrone_collector.cli.apply import apply
from isochrone_collector.cli.doctor import doctor
from isochrone_collector.cli.migrate import migrate
from isochrone_collector.cli.plan import plan
from isochrone_collector.cli.serve import serve
from isochrone_collector.cli.vantage import vantage
from isochrone_collector.errors import CollectorError


class _Failure(click.ClickException):
    """One of our errors as click shows it: the sentence, then the hint."""

    def __init__(self, error: CollectorError) -> None:
        super().__init__(str(error))
        self.error = error

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click declares a class variable and only reads it
        """The exit code of the error's class."""
        return self.error.exit_code

    def show(self, file: IO[str] | None = None) -> None:
        click.echo(f"error: {self.message}", err=True, file=file)
        if self.error.hint:
            click.echo(f"hint: {self.error.hint}", err=True, file=file)


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CollectorError as error:
            raise _Failure(error) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="isochrone")
def main() -> None:
    """Operate the collector: serve it, migrate its database, apply plans.

    \b
    Example:
      isochrone-collector serve
    """


for _command in (serve, migrate, vantage, access, apply, plan, alerts, doctor):
    main.add_command(_command)
