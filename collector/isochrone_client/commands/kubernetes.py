import os
import socket
import uuid

import click

from isochrone_client import terminal
from isochrone_client.address import Collector
from isochrone_client.commands import options
from isochrone_client.route_follower import Follower


@options.command(
    "kubernetes",
    "isochrone routes kubernetes --region us-east-2",
    "isochrone routes kubernetes --region us-east-2 --server http://127.0.0.1:8001 --namespace gateway",
)
@options.region_option("--region", required=True, help="The region that the cluster is in.")
@options.route
@click.option(
    "--server",
    metavar="URL",
    help="The API server, such as that of `kubectl proxy`.  [default: the pod's cluster, as its service account]",
)
@click.option("--namespace", metavar="NAME", help="The namespace of the route objects.  [default: the pod's]")
@click.option("--lease", metavar="NAME", help="The lease that its leader holds.  [default: isochrone-REGION]")
@options.asking
def kubernetes(
    *,
    collector: Collector,
    timeout_us: int,
    region: str,
    route: str,
    server: str | None,
    namespace: str | None,
    lease: str | None,
) -> None:
    """Make routes of a Kubernetes cluster follow the tables of a region.

    It changes the weights of HTTPRoutes (Gateway API), and weights and priorities of AIGatewayRoutes (Envoy AI
    Gateway), that have the label isochrone/route. Of several replicas one leads, and the others wait.
    """
    with options.needing("isochrone routes kubernetes", "httpx", extra="kubernetes"):
        from isochrone_client.kubernetes.cluster import SERVICE_ACCOUNT, Cluster  # noqa: PLC0415  # an extra
        from isochrone_client.kubernetes.reconciler import Election, Reconciler  # noqa: PLC0415  # as above
    account = None if server else SERVICE_ACCOUNT
    if account is not None and not (account / "token").exists():
        raise click.UsageError("this is no pod with a service account: name the API server with --server")
    if namespace is None:
        namespace = (account / "namespace").read_text().strip() if account else "default"
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    cluster = Cluster(server or f"https://{host}:{port}", namespace, account)
    reconciler = Reconciler(
        cluster=cluster,
        lease=lease or f"isochrone-{region.lower()}",
        election=Election(f"{socket.gethostname()}_{uuid.uuid4()}"),
        report=terminal.remark,
    )
    reconciler.start()
    try:
        Follower(
            collector=collector,
            timeout_us=timeout_us,
            region=region,
            route=route,
            render=lambda answer: answer.tables,
            write=reconciler.receive,
            place="the cluster",
            done="received",
        ).run()
    finally:
        reconciler.stop()
        cluster.close()
