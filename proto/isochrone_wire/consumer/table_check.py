"""The check of a route table before a consumer acts on it: a wrong one would send traffic and keys elsewhere."""

import math

from isochrone_wire.durations import MINUTE_US
from isochrone_wire.plan_limits import DIALECTS
from isochrone_wire.routes import RouteTable
from isochrone_wire.text import is_http_url

_WEIGHT_TOLERANCE = 1e-6


def defect(table: RouteTable) -> str:
    """The reason for which no consumer may act on the table; empty if it may."""
    for entry in table.entries:
        if not is_http_url(entry.base_url):
            return f"{entry.target} has the base URL {entry.base_url[:80]!r}"
        if entry.dialect not in DIALECTS:
            return f"{entry.target} has the unknown dialect {entry.dialect[:80]!r}"
    if not 0 <= table.move_within_us <= 60 * MINUTE_US:
        return f"move_within_us is {table.move_within_us}"
    shares = [*(entry.weight for entry in table.entries), table.unassigned]
    if not all(0 <= share <= 1 for share in shares):
        return f"the weights and the unassigned share are {', '.join(str(share) for share in shares)}"
    return contradiction(table)


def contradiction(table: RouteTable) -> str:
    """The reason for which the entries of a table do not fit together; empty if they do."""
    targets = [entry.target for entry in table.entries]
    if len(set(targets)) < len(targets):
        return "entries: a target has several entries"
    whole = sum(entry.weight for entry in table.entries) + table.unassigned
    if targets and not math.isclose(whole, 1, abs_tol=_WEIGHT_TOLERANCE):
        return f"weights and unassigned add up to {whole}, not to 1"
    return ""
