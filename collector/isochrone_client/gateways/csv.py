"""The tables as CSV, with the columns of `isochrone routes --output csv`."""

from isochrone_client.pages import routes
from isochrone_client.render import csv
from isochrone_client.render.page import RenderOptions
from isochrone_wire.routes import RegionTables


def render(tables: RegionTables) -> dict[str, str]:
    """One line per member, with the generation and the instants of its table."""
    page = routes.page(tables.tables, now_at=tables.answered_at)
    return {"": csv.whole(page, RenderOptions())}
