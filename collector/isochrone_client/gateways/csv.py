import csv as standard_csv
import io
from collections.abc import Iterator, Mapping

from isochrone_client.pages import routes as route_pages
from isochrone_client.render import csv
from isochrone_client.render.page import RenderOptions
from isochrone_wire.routes import RegionTables


def render(tables: RegionTables) -> dict[str, str]:
    """One line per member, with the generation and the instants of its table."""
    page = route_pages.page(tables.tables, now_at=tables.answered_at)
    return {"": csv.whole(page, RenderOptions())}


def read_metadata(text: str) -> Iterator[Mapping[str, str]]:
    """The lines of an export."""
    yield from standard_csv.DictReader(io.StringIO(text))
