"""The policy of this agent: what it does at most, whatever a plan asks for. Only the agent reads it, from its own file,
so a stolen collector cannot change it.

    networks = ["10.0.0.0/24"]        # addresses that are not public and may be probed
    min_every_seconds = 1.0
    max_streams = 20                  # concurrent requests
    error_chars = 80                  # of the texts of a provider in a sample
    requests_per_day = 100_000        # all destinations together; also tokens_per_day
    usd_per_day = 50.0
    usd_per_m_input = 1.0             # dollars count at these prices, or at higher ones of the URL or of the plan
    usd_per_m_output = 5.0
    plan_key = "isochrone-plan-…"     # plans must be signed with this key
    tls_files = "/etc/isochrone/tls"  # the only folder whose files a plan may name under `tls`; without it none

    [[allow]]                         # without any, every public host
    url = "https://api.openai.com/v1"
    requests_per_day = 20_000
    tokens_per_day = 5_000_000
    usd_per_day = 20.0
    usd_per_m_input = 0.15            # by default those of all destinations
    usd_per_m_output = 0.60

Without a file, every public host is allowed, at most `DEFAULT_STREAMS` requests at once, and no limit per day applies.
The agent's own machine is allowed only if the collector is on it too.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from isochrone_agent.errors import SettingsError
from isochrone_agent.plan.budget import FREE, Account, highest_price
from isochrone_agent.probe.destinations import (
    DEFAULT_PORTS,
    LOOPBACK,
    Destinations,
    Network,
    Url,
    UrlPrefix,
    is_address,
    parse_prefix,
    parse_url,
)
from isochrone_agent.probe.measurement import ERROR_CHARS
from isochrone_agent.settings import Settings, suggestion
from isochrone_common.dialects import DIALECTS
from isochrone_common.dialects.providers import quirks_of
from isochrone_common.plan_signature import parse_key
from isochrone_wire import workloads
from isochrone_wire.model import SECOND_US, Budget, Plan, Price, Target, TlsFiles
from isochrone_wire.text import secret_problem, shortened
from isochrone_wire.workloads import POLICY_PREFIX

FILE_NAME = "policy.toml"
DEFAULT_STREAMS = 100
PUBLIC = Destinations()
TOTAL = f"{POLICY_PREFIX}total"
"""The account of all destinations together."""
_LIMITS = {"requests_per_day": int, "tokens_per_day": int, "usd_per_day": float}
_PRICES = {"usd_per_m_input": float, "usd_per_m_output": float}
_BOUNDS = {"min_every_seconds": float, "max_streams": int, "error_chars": int}
_KEYS = frozenset({"networks", "allow", "plan_key", "tls_files", *_BOUNDS, *_LIMITS, *_PRICES})
_ALLOW_KEYS = frozenset({"url", *_LIMITS, *_PRICES})
_SHOWN = 3
_HINT = "see docs/agent.md, section Policy"
_NEEDS_PRICES = "usd_per_day needs usd_per_m_input and usd_per_m_output above 0: a plan could state lower prices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`accounts`: limits per day by prefix, `total`: of all together; `prices`: the lowest at which dollars count."""

    path: Path | None = None
    destinations: Destinations = PUBLIC
    accounts: Mapping[UrlPrefix, Account] = field(default_factory=dict)
    total: Account | None = None
    prices: Mapping[UrlPrefix, Price] = field(default_factory=dict)
    min_every_us: int = 0
    max_streams: int = DEFAULT_STREAMS
    error_chars: int = ERROR_CHARS
    plan_key: str | None = None
    tls_files: Path | None = None

    def __str__(self) -> str:
        return str(self.path) if self.path else "built-in"

    @property
    def limits_volume(self) -> bool:
        """True if every request counts towards a limit per day."""
        prefixes = self.destinations.prefixes
        return self.total is not None or (bool(prefixes) and all(prefix in self.accounts for prefix in prefixes))

    def refusal(self, target: Target) -> str | None:
        """Return why `target` must not be probed, as far as its name and numbers show; `None` if it may."""
        if problem := secret_problem(target.base_url):
            return problem
        if "#" in target.base_url:
            return f"the base URL {target.base_url} contains #"
        if target.every_us < self.min_every_us:
            least = self.min_every_us / SECOND_US
            return f"its interval is {target.every_us / SECOND_US:g} s, and min_every_seconds is {least:g}"
        if target.workload.concurrency > self.max_streams:
            return f"it has {target.workload.concurrency} concurrent streams, and max_streams is {self.max_streams}"
        if target.tls and (outside := _file_refusal(target.tls, self.tls_files)):
            return outside
        if (url := request_url(target)) is None:
            return None
        refusal = self.destinations.refusal(url)
        if refusal or not is_address(url.host):
            return refusal
        return self.destinations.address_refusal(url.host, url.port or DEFAULT_PORTS[url.scheme], url.host)

    def refusals(self, targets: Iterable[Target]) -> dict[str, str]:
        """Return, by target name, why the targets that must not be probed are refused."""
        reasons = ((target.name, self.refusal(target)) for target in targets if not target.paused)
        return {name: reason for name, reason in reasons if reason}

    def accounts_of(self, target: Target) -> Sequence[Account]:
        """Return the accounts that a request to `target` is charged to."""
        url = request_url(target) if self.destinations.prefixes else None
        covering = [prefix for prefix in self.destinations.prefixes if url and prefix.covers(url)]
        own = [self.accounts[prefix] for prefix in covering if prefix in self.accounts]
        if self.total is None:
            return own
        price = highest_price(self.total.price, *(self.prices[prefix] for prefix in covering))
        return (replace(self.total, price=price), *own)


def _file_refusal(files: TlsFiles, folder: Path | None) -> str | None:
    """Return why the files may not be opened: a plan must not make the agent read others than the operator's."""
    if folder is None:
        return "its plan names files under tls, and the policy has no tls_files"
    for path in files.paths:
        try:
            inside = (folder / path).resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError, RuntimeError):  # a path too long, with a NUL, or of links in a circle
            inside = False
        if not inside:
            return f"the file {shortened(path)!r} is not below tls_files ({folder})"
    return None


def describe_refused(reasons: Mapping[str, str]) -> str:
    """Return a sentence on the first few targets that are refused, cut as in a log; empty if there are none."""
    shown = "; ".join(f"{target}: {reason}" for target, reason in islice(reasons.items(), _SHOWN))
    return shortened(shown) + (f" (and {len(reasons) - _SHOWN} more)" if len(reasons) > _SHOWN else "")


def request_url(target: Target) -> Url | None:
    """Return the URL of the requests to `target`; `None` if it is not valid, so that none can be sent."""
    dialect = DIALECTS.get(target.dialect)
    if dialect is None:
        return None
    try:
        return parse_url(dialect.request(target, nonce="", key=None, quirks=quirks_of(target)).url)
    except ValueError:
        return None


def load_policy(settings: Settings) -> Policy:
    """Load `--policy`, else `policy.toml` in the data folder, else the built-in policy. Raises `SettingsError`."""
    path = settings.policy or settings.data_dir / FILE_NAME
    redirected = frozenset(settings.dial_options.connect_to)
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        if settings.policy is not None:
            raise SettingsError(f"{path} does not exist", hint=_HINT) from error
        networks = LOOPBACK if settings.collector.is_loopback else ()
        return Policy(destinations=Destinations(networks=networks, redirected=redirected))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint=_HINT) from error
    try:
        return parse_policy(text, path, redirected=redirected)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}", hint=_HINT) from error


def parse_policy(text: str, path: Path, *, redirected: frozenset[tuple[str, int]] = frozenset()) -> Policy:
    """Parse the text of a policy file. Raises `ValueError`, which names every problem."""
    document = tomllib.loads(text)
    tables = document.get("allow", [])
    is_list = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
    if not is_list or ("allow" in document and not tables):
        raise ValueError("allow is not a list of tables: write [[allow]]")
    problems = _problems(document, _KEYS, "")
    for number, table in enumerate(tables, 1):
        problems += _problems(table, _ALLOW_KEYS, f"[[allow]] {number}: ")
    default = {key: document[key] for key in _PRICES if key in document}
    priced = [default | table for table in tables]
    problems += _price_problems(document, priced)
    if problems:
        raise ValueError("; ".join(problems))
    prefixes = [parse_prefix(table["url"]) for table in tables]
    if twice := next((prefix for prefix in prefixes if prefixes.count(prefix) > 1), None):
        raise ValueError(f"{twice} is allowed twice")
    accounts = {
        prefix: _account(table, f"{POLICY_PREFIX}{prefix}") for prefix, table in zip(prefixes, priced, strict=True)
    }
    return Policy(
        path=path,
        destinations=Destinations(
            prefixes=tuple(prefixes), networks=_networks(document.get("networks", [])), redirected=redirected
        ),
        accounts={prefix: account for prefix, account in accounts.items() if account},
        total=_account(document, TOTAL),
        prices={prefix: _price(table) for prefix, table in zip(prefixes, priced, strict=True)},
        min_every_us=round(document.get("min_every_seconds", 0) * SECOND_US),
        max_streams=document.get("max_streams", DEFAULT_STREAMS),
        error_chars=min(document.get("error_chars", ERROR_CHARS), ERROR_CHARS),
        plan_key=document.get("plan_key"),
        tls_files=Path(document["tls_files"]) if "tls_files" in document else None,
    )


def _problems(table: Mapping[str, Any], known: frozenset[str], where: str) -> list[str]:
    problems = [f"{where}unknown key {key!r}{suggestion(key, known)}" for key in table if key not in known]
    for key, kind in (_BOUNDS | _LIMITS | _PRICES).items():
        value = table.get(key, 0)
        if key in known and not (type(value) in (int, kind) and 0 <= value < float("inf")):
            wanted = "a whole number" if kind is int else "a number"
            problems.append(f"{where}{key} is {value!r}, which is not {wanted} of at least 0")
    if "url" in known:
        problems += _value_problems(f"{where}url", parse_prefix, str(table.get("url", "")))
        return problems
    if not isinstance(networks := table.get("networks", []), list):
        problems.append("networks is not a list")
    else:
        problems += _value_problems("networks", _networks, networks)
    tls_files = table.get("tls_files", "/")
    if not (isinstance(tls_files, str) and Path(tls_files).is_absolute()):
        problems.append(f"tls_files is {tls_files!r}, which is not the absolute path of a folder")
    if (plan_key := table.get("plan_key")) is not None:
        problems += _value_problems("plan_key", parse_key, str(plan_key))
    return problems


def _value_problems(key: str, parse: Callable[[Any], object], value: object) -> list[str]:
    try:
        parse(value)
    except ValueError as error:
        return [f"{key}: {error}"]
    return []


def _price_problems(document: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the limits in dollars that have no prices of their own; `tables` have the default prices."""
    if "usd_per_day" in document and not _has_prices(document) and not (tables and all(map(_has_prices, tables))):
        yield _NEEDS_PRICES
    for number, table in enumerate(tables, 1):
        if "usd_per_day" in table and not _has_prices(table):
            yield f"[[allow]] {number}: {_NEEDS_PRICES}"


def _has_prices(table: Mapping[str, Any]) -> bool:
    return all(table.get(key, 0) for key in _PRICES)


def _networks(texts: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ip_network(str(text), strict=False) for text in texts)


def _account(table: Mapping[str, Any], name: str) -> Account | None:
    limits = {key: table[key] for key in _LIMITS if key in table}
    return Account(limits=Budget(provider=name, **limits), price=_price(table)) if limits else None


def _price(table: Mapping[str, Any]) -> Price:
    return replace(FREE, **{key: table[key] for key in _PRICES if key in table})


_TEXTS = {"reasoning_effort": "effort", "base_url": "base URL"}
_SHOWN_CHARS = 60
_RESERVED = f"the prefix {workloads.POLICY_PREFIX} is that of the agent's own policy"


def limit_violations(plan: Plan) -> list[str]:
    """Return one sentence for each limit that `plan` violates, naming the target, the value and the limit: a broken or
    compromised collector must not take the agent down.
    """
    problems = list(_outside(plan, workloads.PLAN_LIMITS, "the plan"))
    size = sum(len(target.workload.prompt.encode()) for target in plan.targets)
    problems += _sentence("the plan", "bytes of all prompts", size, 0, workloads.MAX_PROMPTS_BYTES)
    for target in plan.targets:
        name = target.name[:_SHOWN_CHARS] or f"target {target.id}"
        problems += _outside(target, workloads.TARGET_LIMITS, name)
        problems += _outside(target.price, workloads.PRICE_LIMITS, name) if target.price else ()
        if target.provider.startswith(workloads.POLICY_PREFIX):
            problems.append(f"{name} has the provider {target.provider[:_SHOWN_CHARS]!r}: {_RESERVED}")
    for budget in plan.budgets:
        problems += _outside(budget, workloads.BUDGET_LIMITS, f"the budget of {budget.provider[:_SHOWN_CHARS]}")
    return problems


def _outside(checked: object, bounds: workloads.Limits, whose: str) -> Iterator[str]:
    for path, (low, high) in bounds.items():
        value, what = attrgetter(path)(checked), path.rpartition(".")[2]
        if what == "prompt":
            value, what = len(value.encode()), "bytes of the prompt"
        elif isinstance(value, str):
            value, what = len(value), f"characters of the {_TEXTS.get(what, what)}"
        elif isinstance(value, Sequence):
            value = len(value)
        yield from _sentence(whose, what, value, low, high)


def _sentence(whose: str, what: str, value: float | None, low: float, high: float) -> Iterator[str]:
    # Written this way round so that NaN is outside too.
    if value is not None and not low <= value <= high:
        yield f"{whose} has {what} {value:.10g}, outside {low:.10g} to {high:.10g}"
