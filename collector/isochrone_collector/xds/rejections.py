"""Resources that an Envoy rejected: counted, and logged with the reason once per version, at a bounded rate."""

from collections import Counter

from isochrone_collector.auth.limits import RefusalLog
from isochrone_collector.xds.resources import CLUSTERS, ROUTES
from isochrone_collector.xds.stream_state import Rejection
from isochrone_wire.text import shortened
from isochrone_wire.workloads import MAX_NAME_CHARS

_KIND_OF = {CLUSTERS: "clusters", ROUTES: "routes"}


class Rejections:
    """The rejections of this process, over gRPC and HTTP."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """Rejected responses by client region and kind of resource."""
        self._logged: dict[tuple[str, str], str] = {}
        self._log = RefusalLog("envoy.rejected")

    def note(self, client_region: str, rejection: Rejection | None) -> None:
        """Count a rejection, if there is one, of a region that has tables."""
        if rejection is None:
            return
        key = client_region, _KIND_OF[rejection.type_url]
        self.counts[key] += 1
        # Over HTTP an Envoy states the version.
        version = shortened(rejection.version, MAX_NAME_CHARS)
        if self._logged.get(key) != version:
            self._logged[key] = version
            self._log.write(
                client_region=client_region, resources=key[1], version=version, reason=shortened(rejection.reason)
            )
