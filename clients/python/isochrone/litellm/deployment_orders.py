"""The order in which LiteLLM tries the deployments of a model, by a route table. Pure.

LiteLLM sends a request to a deployment of the lowest `order`. After a failure it filters the deployments again: if the
failed one kept its order, every further attempt would go to it.
"""

from collections.abc import Collection, Mapping, Sequence

from isochrone.routing.attempts import order
from isochrone_wire.routes import RouteEntry


def target_of(deployment_id: str, targets: Collection[str], *, named: Mapping[str, str]) -> str | None:
    """The target that a deployment is: the one in `named`, or its id, of which a part from the last `@` is ignored
    because ids are unique. `None` if that is none of the `targets`.
    """
    name = named.get(deployment_id, deployment_id)
    return next((one for one in (name, name.rpartition("@")[0]) if one in targets), None)


def deployment_orders(
    entries: Sequence[RouteEntry],
    deployment_ids: Sequence[str],
    *,
    named: Mapping[str, str],
    tried: Collection[str] = (),
    resting: Collection[str] = (),
    draw: float,
) -> dict[str, int]:
    """The order of each deployment by its id, from 1; empty if none of them is a member.

    First comes the member drawn by weight (`draw` is from 0 to 1, excluded), then the others by rank, then deployments
    that are no member; those that are `resting` after a failure come behind these, and those that the request has
    `tried` come last. Deployments of the same target share an order.
    """
    targets = [entry.target for entry in entries]
    target = {one: target_of(one, targets, named=named) for one in deployment_ids}
    if not any(target.values()):
        return {}
    untried = {target[one] for one in deployment_ids if one not in tried}
    wanted = order([entry for entry in entries if entry.target in untried], unassigned=0.0, draw=draw)
    ranks = {entry.target: rank for rank, entry in enumerate(wanted)}

    def place(one: str) -> tuple[bool, bool, int]:
        return one in tried, one in resting, ranks.get(target[one] or "", len(ranks))

    places = sorted({place(one) for one in deployment_ids})
    return {one: places.index(place(one)) + 1 for one in deployment_ids}
