"""`--watch`: ask and print again until Ctrl-C, across restarts of the collector."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from isochrone_client import terminal
from isochrone_client.errors import InsufficientError, SlowError, UnreachableError
from isochrone_client.render.page import Page
from isochrone_client.terminal import Output
from isochrone_common.cli.command_line import print_error

Write = Callable[[Page[Any]], None]

_AWAY = (UnreachableError, SlowError)


def run(show: Callable[[Write], None], *, output: Output, every_s: float | None) -> None:
    """Call `show` with a function that prints a page: once, or every `every_s` seconds until Ctrl-C.

    An outage of the collector is printed once, and `show` is called again until it ends. Raises the errors of the first
    call.
    """
    if every_s is None:
        show(partial(terminal.write, output=output))
        return
    try:
        _repeat(show, output, every_s)
    except KeyboardInterrupt:
        return


def _repeat(show: Callable[[Write], None], output: Output, every_s: float) -> None:
    first, away = True, False
    while True:
        try:
            show(partial(terminal.refresh, output=output, first=first))
            away = False
        except InsufficientError as error:
            print_error(str(error), prefix="note")
            away = False
        except _AWAY as error:
            if first:
                raise
            if not away:
                print_error(f"{error}; trying again every {every_s:g} s")
            away = True
        first = False
        time.sleep(every_s)
