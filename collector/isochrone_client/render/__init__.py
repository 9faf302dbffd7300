"""Rendering of pages: one module per output format, imported when it is used."""

from importlib import import_module
from typing import Protocol, cast

from isochrone_client.render.page import Page, RenderOptions, Row

OUTPUTS = ("table", "json", "csv", "markdown")


class Renderer(Protocol):
    """The interface of each output format's module. The texts end in a newline or are empty."""

    def whole(self, page: Page[Row], options: RenderOptions) -> str:
        """The page as a complete text."""

    def opening(self, page: Page[Row], options: RenderOptions) -> str:
        """The page as the start of a text that continues."""

    def more(self, page: Page[Row], options: RenderOptions) -> str:
        """The rows of a later page with the same columns, to follow the opening."""


def renderer(output: str) -> Renderer:
    """The renderer of one of `OUTPUTS`."""
    return cast(Renderer, import_module(f"isochrone_client.render.{output}"))
