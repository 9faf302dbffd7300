"""Why there are no samples: no plan, no agent, or an agent that delivers none; and the command that helps."""

from isochrone_client.address import Collector
from isochrone_client.client import ReadClient
from isochrone_client.errors import ClientError, InsufficientError, NoSamplesError
from isochrone_client.names import Names
from isochrone_client.pages.fleet import require_targets
from isochrone_wire.answers import Absence
from isochrone_wire.fleet import ELSEWHERE, VantageList, absences, absences_besides

_MAX_NAMED = 3


def explain(
    error: InsufficientError, collector: Collector, *, regions: tuple[str, ...], timeout_us: int
) -> InsufficientError:
    """Return the error with the reason for each of `regions` (empty: all), and the command for the first of them.

    Asks the collector; an error about something else, or a collector that does not answer, leaves it as it is.
    """
    if not isinstance(error, NoSamplesError):
        return error
    try:
        with ReadClient(collector, timeout_us=timeout_us) as client:
            plan, fleet = client.list_targets(), client.list_vantages()
        require_targets(plan)
    except InsufficientError as better:
        return better
    except ClientError:
        return error
    missing = error.missing
    if not missing and error.besides:
        missing = absences_besides(error.besides, fleet.vantages, error.window, baseline=plan.baseline)
    elif not missing:
        names = Names.of(plan, fleet)
        missing = absences(map(names.region, regions or names.regions), fleet.vantages, error.window)
    if not missing:
        return error
    hint = _hint(missing[0], fleet, collector) or error.hint
    return InsufficientError("; ".join([str(error), *_sentences(missing)]), hint=hint)


def _sentences(missing: tuple[Absence, ...]) -> list[str]:
    elsewhere = [one.region for one in missing if one.sentence.endswith(ELSEWHERE)]
    if len(elsewhere) == len(missing) > 1:
        others = len(elsewhere) - _MAX_NAMED
        regions = ", ".join([*elsewhere[:_MAX_NAMED], *([f"{others} more"] if others > 0 else [])])
        return [f"no samples from {regions} in this selection, but their vantages have delivered others"]
    named = [one.sentence for one in missing[:_MAX_NAMED]]
    others = len(missing) - len(named)
    return [*named, f"and none from {others} more regions"] if others else named


def _hint(missing: Absence, fleet: VantageList, collector: Collector) -> str:
    there = [one for one in fleet.vantages if one.region == missing.region]
    if any(one.newest_sample_at for one in there):
        return ""
    region = missing.region or "REGION"
    name = there[0].name if there else f"{region}-1"
    if collector.identity is None:
        return f"isochrone-agent run --vantage {name} --region {region} --collector {collector.agents_address}"
    if there:
        return f"run `isochrone-agent doctor` on the machine of {name}"
    return f"isochrone-collector vantage add {name} --region {region} --address {collector.agents_address}"
