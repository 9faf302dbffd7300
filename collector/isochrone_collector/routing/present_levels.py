"""The present difference between the TTFT of two members, by a hidden Markov filter.

In a round, the logarithm of the ratio of two TTFTs is a level plus noise. With a probability per round, the hazard, the
level jumps to another one (J. D. Hamilton, Econometrica 57 (1989) 357-384). The noise is white or autocorrelated, or a
share of it is drift; the filter keeps the present value of that part per level (interacting multiple models: H. A. P.
Blom and Y. Bar-Shalom, IEEE Trans. Automatic Control 33 (1988) 780-783). Drift that turns within hours is noise; drift
that takes a day is part of the level. Hazards and kinds of noise are hypotheses. All pairs of a route share the weights
of these and how often each level was met: members that were equal for hours must show more before a jump is believed
than members that change twice an hour.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

import numpy as np

from isochrone_collector.analysis.stats.arrays import Flags, Integers, Reals
from isochrone_collector.routing.inputs import ROUNDS_PER_EPOCH, Inputs, JointRounds
from isochrone_wire.durations import SECOND_US

_ABOVE = (0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.36, 0.43, 0.5, 0.6, 0.72, 0.87, 1.05, 1.3, 1.6, 2.0, 2.5)
LEVELS: Reals = np.array([*(-level for level in reversed(_ABOVE)), 0.0, *_ABOVE])
"""The levels, as logarithms of ratios, in ascending order."""
# The variance of the values that a level stands for: all that are nearest to it.
_WITHIN: Reals = np.gradient(LEVELS) ** 2 / 12

_HAZARDS: Reals = np.array([1 / 10, 1 / 25, 1 / 60, 1 / 120, 1 / 300, 1 / 2000])
_HAZARD_WEIGHTS = (0.05, 0.15, 0.2, 0.2, 0.2, 0.2)
# The share of the variance that is autocorrelated, its correlation from one round to the next, and the prior weight.
_ROUND_NOISE = ((0.0, 0.0, 0.65), (1.0, 0.5, 0.2), (1.0, 0.8, 0.13), (1.0, 0.97, 0.01))
# The same for drift of hours and for that of a day: its correlation is that after `_DRIFT_STEP_US`.
_DRIFT = ((0.2, 0.965, 0.2), (0.2, 0.995, 0.2))
_DRIFT_STEP_US = 300 * SECOND_US
_SHAPE = (len(_ROUND_NOISE) + len(_DRIFT), len(_HAZARDS), len(LEVELS))
# From the end of a probe to its sample's arrival.
_DELIVERY_US = 10 * SECOND_US

# Before any round was seen: a level is equal with this probability, else of this size on average.
_EQUAL, _SIZE = 0.3, 0.35
_SIZED: Reals = np.exp(-np.abs(LEVELS) / _SIZE) * np.gradient(LEVELS)
_PRIOR: Reals = np.where(LEVELS == 0, _EQUAL, 0.0) + (1 - _EQUAL) * _SIZED / _SIZED.sum()
_PRIOR_ROUNDS = 60.0
# The weight of a round's evidence halves in 693 rounds.
_KEPT = 0.999
_LEAST_WEIGHT, _UNLIKELY = -16.0, -9.0
# Outliers of the values that white noise explains: their share, their standard deviation in units of that of the noise,
# and at least. Autocorrelated noise explains values far off by its past: it has fewer outliers.
_OUTLIERS: Reals = np.array([0.03, 0.003, 0.001, 0.001, 0.03, 0.03])[:, np.newaxis, np.newaxis]
_WIDE, _WIDEST = 5.0, 1.0
_MOST_DEVIATIONS = 3.0
# The median of |x| of a normal x, squared, times 2 for a difference.
_MAD_TO_VARIANCE = 0.6745**2 * 2
_LEAST_DEVIATION = 0.01
# The variance of the noise is an average over so many rounds: a window alone knows it to a third.
_VARIANCE_ROUNDS = 300.0
_SCARCE_ROUNDS, _UNKNOWN_DEVIATION = 4.0, 0.3
# Levels change often if the weights of hazards above `_OFTEN`, and of a part of those above `_SELDOM`, add up to more
# than `_FEW`, fully from `_MOST` on. They are tiny, and drift is noise, as far as their root mean square is below these
# bounds. Products of differences `_LAGS` rounds apart show that, as noise is forgotten by then; they are averaged over
# days, and count from the round `_FEWEST` on.
_OFTEN, _SELDOM, _MOST, _FEW = 1 / 60, 1 / 180, 0.7, 0.3
_TINY, _SMALL = (0.16, 0.2), (0.22, 0.28)
_LAGS, _PRODUCTS_KEPT, _MOST_DIFFERENCE = (4, 5, 6), 0.9997, 1.5
_FEWEST = 100.0
# The lead that is needed beyond the usual margin: while tiny levels change often, and while drift of hours is noise.
_CAUTION = 0.75
# The least probability of a lead, and how much more the first rounds need.
_LIKELY, _LIKELIER, _YOUNG_ROUNDS = 0.5, 0.4, 216.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentLevels:
    """The state of the filter after all rounds before `until_at`, the last of them at `observed_at`. `weights` are the
    logarithms of the weights of the hypotheses (kinds of noise by hazards), `visits` the rounds spent at each level;
    `products` are the rounds whose difference was multiplied by earlier ones, and the sum of these. `pairs` maps the
    left and the right member to the probabilities of the levels and the present deviations, by likely kind of noise and
    hazard, packed as bytes, and `variances` to half the variance of the differences between successive rounds.
    """

    until_at: int = 0
    observed_at: int = 0
    weights: tuple[float, ...] = ()
    visits: tuple[float, ...] = ()
    products: tuple[float, float] = (0.0, 0.0)
    pairs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    variances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The probabilities of `LEVELS` now, a row per pair with rounds in common. While levels drift, or change often by
    little, a lead must be larger by `caution`, a share of the median: no switch can follow them. A lead
    must have the probability `likely`, which is high as long as few rounds have shown what kind of noise there is.
    """

    rows: Mapping[tuple[str, str], int]
    probabilities: Reals
    caution: float
    likely: float

    def of(self, left: str, right: str) -> Reals | None:
        """Return the probabilities of the levels of log(left / right); `None` without a common round."""
        if (left, right) in self.rows:
            return np.asarray(self.probabilities[self.rows[left, right]])
        return np.asarray(self.probabilities[self.rows[right, left]][::-1]) if (right, left) in self.rows else None


def followed(before: PresentLevels, inputs: Inputs) -> tuple[PresentLevels, Present]:
    """Return the state after the settled rounds, to which no sample will be added any more, and the present levels. A
    state from the future, of a clock that was ahead, or of other hypotheses is dropped.
    """
    if before.until_at > inputs.at:
        before = PresentLevels()
    if (len(before.weights), len(before.visits)) != (_SHAPE[0] * _SHAPE[1], len(LEVELS)):
        before = PresentLevels(until_at=before.until_at)
    pairs = list(combinations(sorted(target.name for target in inputs.targets), 2))
    slot_us = max(target.every_us for target in inputs.targets)
    slots, differences = _differences(inputs.joint, pairs, slot_us)
    until_at = max(_settled_until(inputs, slot_us), before.until_at)
    settled = slots * slot_us < until_at
    fresh = settled & (slots * slot_us >= before.until_at)
    variances = _averaged(before, pairs, _variances(differences), rounds=int(fresh.sum()))
    current = _Filter(before, pairs, slot_us, variances)
    current.observe(slots, differences, fresh)
    products = _products(before.products, differences, fresh)
    state = before if until_at == before.until_at else current.packed(until_at, products, variances)
    current.observe(slots, differences, ~settled)
    return state, current.present(np.asarray(np.isfinite(differences).any(axis=0)), products)


def _settled_until(inputs: Inputs, slot_us: int) -> int:
    """Return the instant before which all probes have ended and their samples have arrived. It moves on once in an
    epoch, so that a state is not rounded with each decision; half a window at most, so that no round has left it.
    """
    total_us = max(target.workload.timeouts.total_us for target in inputs.targets)
    settling_us = max(inputs.rules.epoch_us, slot_us + total_us + _DELIVERY_US)
    step_us = min(ROUNDS_PER_EPOCH * slot_us, max(inputs.rules.window_us // 4 // slot_us, 1) * slot_us)
    return (inputs.at - min(settling_us, inputs.rules.window_us // 2)) // step_us * step_us


def _differences(joint: JointRounds, pairs: Sequence[tuple[str, str]], slot_us: int) -> tuple[Integers, Reals]:
    """Return the slots, ascending, and by slot and pair the mean logarithm of left / right: over the vantages and
    rounds that have both members, else of the means of each; NaN without.
    """
    slots, starts = np.unique(np.array(joint.round_at, np.int64) // slot_us, return_index=True)
    names = sorted({name for pair in pairs for name in pair})
    logs = joint.logarithms(names)
    left, right = (np.array([names.index(pair[side]) for pair in pairs], np.int64) for side in (0, 1))
    both = _means(logs[:, left] - logs[:, right], starts)
    alone = _means(logs, starts)
    return slots, np.where(np.isnan(both), alone[:, left] - alone[:, right], both)


def _means(rows: Reals, starts: Integers) -> Reals:
    """Return the mean of the known values of each group of rows, which begin at `starts`; NaN without one."""
    known = ~np.isnan(rows)
    sums, counts = (np.add.reduceat(of, starts) for of in (np.where(known, rows, 0.0), known.astype(np.float64)))
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _variances(differences: Reals) -> Reals:
    """Return half the variance of the differences between successive rounds, by pair; one jump hardly changes it."""
    known = ~np.isnan(differences)
    last = np.maximum.accumulate(np.where(known, np.arange(len(known))[:, np.newaxis], -1), axis=0)[:-1]
    steps = np.abs(differences[1:] - np.take_along_axis(differences, np.maximum(last, 0), axis=0))
    steps = np.sort(steps, axis=0)  # NaN is last
    counts = np.maximum((~np.isnan(steps)).sum(axis=0), 1)
    middle = np.stack([(counts - 1) // 2, counts // 2])
    median = np.take_along_axis(steps, middle, axis=0).mean(axis=0) if len(steps) else np.full(known.shape[1], np.nan)
    scarce = (_UNKNOWN_DEVIATION * _SCARCE_ROUNDS / counts) ** 2
    variance = np.fmax(median**2 / _MAD_TO_VARIANCE * (1 + _SCARCE_ROUNDS / counts), scarce)
    return np.asarray(np.maximum(variance, _LEAST_DEVIATION**2))


def _averaged(
    before: PresentLevels, pairs: Sequence[tuple[str, str]], variances: Reals, *, rounds: int
) -> dict[tuple[str, str], float]:
    """Return the variances by pair, averaged with those before the fresh rounds."""
    share = rounds / min(sum(before.visits) + rounds, _VARIANCE_ROUNDS) if rounds else 0.0
    known = [before.variances.get(left, {}).get(right) for left, right in pairs]
    return {
        pair: old * (new / old) ** share if old else new
        for pair, old, new in zip(pairs, known, variances.tolist(), strict=True)
    }


def _products(before: tuple[float, float], differences: Reals, fresh: Flags) -> tuple[float, float]:
    """Return the rounds and the sum of products with those of the fresh rounds."""
    near = np.clip(differences, -_MOST_DIFFERENCE, _MOST_DIFFERENCE)
    found = np.concatenate([(near[lag:] * near[:-lag])[fresh[lag:]].ravel() for lag in _LAGS])
    found = found[~np.isnan(found)]
    rounds = int(fresh.sum()) if len(found) else 0
    kept = _PRODUCTS_KEPT**rounds
    return kept * before[0] + rounds, kept * before[1] + (rounds * float(found.mean()) if rounds else 0.0)


class _Filter:
    """The filter over pairs, kinds of noise, hazards and levels. Unlikely kinds of noise are left out; as evidence is
    forgotten, they become likely enough to be tried again.
    """

    def __init__(
        self,
        before: PresentLevels,
        pairs: Sequence[tuple[str, str]],
        slot_us: int,
        variances: Mapping[tuple[str, str], float],
    ) -> None:
        drift = [(share, kept ** (slot_us / _DRIFT_STEP_US), weight) for share, kept, weight in _DRIFT]
        share, kept, weight = np.array([*_ROUND_NOISE, *drift]).T
        self._prior = np.log(np.outer(weight, _HAZARD_WEIGHTS))
        self._weights = np.reshape(before.weights, self._prior.shape) if before.weights else self._prior
        self._visits = np.array(before.visits) if before.visits else np.zeros(len(LEVELS))
        most = self._weights.max(axis=1)
        self._likely = most >= most.max() + _UNLIKELY
        share, self._kept = share[self._likely], kept[self._likely]
        predicted, gain = _steady(share, self._kept)
        # `variances` are half the variance of differences between successive rounds: less than that of the noise.
        scale = 1 / (1 - share * self._kept)
        variance = np.outer([variances[pair] for pair in pairs], scale * predicted)[..., np.newaxis, np.newaxis]
        deviation, outliers = np.sqrt(variance + _WITHIN), _OUTLIERS[self._likely]
        wide = np.maximum(_WIDE, _WIDEST / deviation)
        self._deviation, self._gain = deviation, gain[:, np.newaxis, np.newaxis] * deviation
        self._usual, self._outlying = (1 - outliers) / deviation, outliers / wide / deviation
        self._outlying_width = -1 / (2 * wide**2)
        self._members = len({name for pair in pairs for name in pair})
        self._pairs, self._slot_us, self._observed_at = pairs, slot_us, before.observed_at
        shape = (len(pairs), len(share), len(_HAZARDS), len(LEVELS))
        self._levels, self._deviations = np.empty(shape), np.zeros(shape)
        self._levels[:] = self._jumps()
        self._restore([before.pairs.get(left, {}).get(right, "") for left, right in pairs])

    def _restore(self, texts: Sequence[str]) -> None:
        """Restore the levels of pairs; a kind of noise that was left out begins with the mean of the others."""
        known = {place: text for place, text in enumerate(texts) if len(text) == _PACKED_LENGTH}
        if not known:
            return
        packed = np.frombuffer(b64decode("".join(known.values())), np.uint8).reshape(-1, 2, *_SHAPE)
        levels, deviations = _LEVEL_OF[packed[:, 0, self._likely]], _DEVIATION_OF[packed[:, 1, self._likely]]
        is_known = levels.any(axis=-1, keepdims=True)
        others = levels.sum(axis=(1, 2), keepdims=True) + _LEAST_PROBABILITY * self._jumps()
        levels = np.where(is_known, levels, others)
        places = list(known)
        self._levels[places] = levels / levels.sum(axis=-1, keepdims=True)
        self._deviations[places] = deviations

    def _jumps(self) -> Reals:
        """Return the probabilities of the levels after a jump: as often as they were visited, in either direction."""
        both = (self._visits + self._visits[::-1]) / 2
        return np.asarray((_PRIOR_ROUNDS * _PRIOR + both) / (_PRIOR_ROUNDS + both.sum()))

    def observe(self, slots: Integers, differences: Reals, chosen: Flags) -> None:
        """Take in the differences of the chosen slots, by pair; NaN without."""
        seen = ~np.isnan(differences)
        places = np.flatnonzero(chosen & seen.any(axis=1))
        for start in range(0, len(places), ROUNDS_PER_EPOCH):
            jumps, evidence, visits = self._jumps(), [], []
            for place in places[start : start + ROUNDS_PER_EPOCH].tolist():
                found = self._observe(int(slots[place]), differences[place], seen[place], jumps)
                evidence.append(np.log(found).sum(axis=0))
                visits.append(self._levels[seen[place]].mean(axis=0))
            self._learn(len(visits), np.sum(evidence, axis=0), np.sum(visits, axis=0))

    def _observe(self, slot: int, differences: Reals, seen: Flags, jumps: Reals) -> Reals:
        """Take in the differences of a slot, and return how likely they were by pair, kind of noise and hazard."""
        gap = max(slot - self._observed_at // self._slot_us, 1)
        self._observed_at = slot * self._slot_us
        stays = ((1 - _HAZARDS) ** gap)[:, np.newaxis]
        stayed, arrived = stays * self._levels, (1 - stays) * jumps
        levels = stayed + arrived
        mean = np.einsum("pnhk,pnhk->pnh", self._levels, self._deviations)[..., np.newaxis]
        deviations = np.multiply(stayed, self._deviations, out=stayed)
        deviations += arrived * mean
        deviations /= levels
        deviations *= (self._kept**gap)[:, np.newaxis, np.newaxis]
        score = differences[:, np.newaxis, np.newaxis, np.newaxis] - LEVELS - deviations
        score /= self._deviation
        square = score * score
        likelihood = self._usual * np.exp(-square / 2) + self._outlying * np.exp(self._outlying_width * square) + 1e-12
        correction = self._gain * np.minimum(np.maximum(score, -_MOST_DEVIATIONS), _MOST_DEVIATIONS)
        likelihood[~seen], correction[~seen] = 1.0, 0.0
        deviations += correction
        levels *= likelihood
        evidence = np.asarray(levels.sum(axis=-1))
        levels /= evidence[..., np.newaxis]
        self._levels, self._deviations = levels, deviations
        return evidence

    def _learn(self, rounds: int, evidence: Reals, visits: Reals) -> None:
        kept = _KEPT**rounds
        weights = kept * (self._weights - self._prior) + self._prior
        before = np.logaddexp.reduce(weights[self._likely], axis=None)
        # Only m - 1 of the pairs of m members are independent.
        weights[self._likely] += evidence * 2 / self._members
        # The kinds that are left out neither gain nor lose.
        weights[~self._likely] += np.logaddexp.reduce(weights[self._likely], axis=None) - before
        weights = np.maximum(weights - weights.max(), _LEAST_WEIGHT)
        self._weights = weights - np.logaddexp.reduce(weights, axis=None)
        self._visits = kept * self._visits + np.einsum("nh,nhk->k", self._shares(), visits)

    def _shares(self) -> Reals:
        weights = np.exp(self._weights[self._likely])
        return np.asarray(weights / weights.sum())

    def present(self, known: Flags, products: tuple[float, float]) -> Present:
        """Return the present levels of the known pairs."""
        rounds, total = products
        # If one of m members differs, only 2 of m pairs show it.
        spread = np.sqrt(max(self._members / 2 * total / rounds, 0.0)) if rounds > _FEWEST else _SMALL[1]
        is_tiny, is_small = (_part(spread, none=none, whole=whole) for whole, none in (_TINY, _SMALL))
        weights = np.exp(self._weights)
        is_often = _part(weights[:-1].sum(axis=0) @ _ARE_OFTEN, none=_FEW, whole=_MOST)
        followed = np.array([*np.zeros(len(_ROUND_NOISE)), 1 - is_small, 1.0])[self._likely]
        probabilities = self._probabilities(followed[:, np.newaxis, np.newaxis])
        rows = {pair: place for place, pair in enumerate(self._pairs) if known[place]}
        return Present(
            rows=rows,
            probabilities=probabilities / probabilities.sum(axis=1, keepdims=True),
            caution=float(_CAUTION * max(is_tiny * is_often, is_small * weights[-2].sum())),
            likely=float(_LIKELY + _LIKELIER * np.exp(-self._visits.sum() / _YOUNG_ROUNDS)),
        )

    def _probabilities(self, followed: Reals) -> Reals:
        """Return the probabilities of the levels by pair, after adding the `followed` part of the present deviation."""
        values = np.clip(LEVELS + followed * self._deviations, LEVELS[0], LEVELS[-1])
        above = np.maximum(np.searchsorted(LEVELS, values), 1)
        part = (values - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
        shares = self._shares()[..., np.newaxis] * self._levels
        found = np.zeros((len(self._pairs), len(LEVELS)))
        pair = np.arange(len(found))[:, np.newaxis, np.newaxis, np.newaxis]
        np.add.at(found, (pair, above), shares * part)
        np.add.at(found, (pair, above - 1), shares * (1 - part))
        return found

    def packed(
        self, until_at: int, products: tuple[float, float], variances: Mapping[tuple[str, str], float]
    ) -> PresentLevels:
        """Return the state, without the levels of kinds of noise that are left out."""
        levels, deviations = (np.zeros((len(self._pairs), *_SHAPE)) for _ in range(2))
        levels[:, self._likely], deviations[:, self._likely] = self._levels, self._deviations
        known = levels >= _LEAST_PROBABILITY
        packed = np.stack([np.full(levels.shape, _NEVER, np.uint8), np.full(levels.shape, _ZERO, np.uint8)], axis=1)
        packed[:, 0][known] = np.rint(-_BYTES_PER_LOG * np.log(levels[known]))
        packed[:, 1][known] = np.clip(np.rint(_BYTES_PER_DEVIATION * deviations[known]) + _ZERO, 0, 255)
        pairs: dict[str, dict[str, str]] = {}
        rounded: dict[str, dict[str, float]] = {}
        for (left, right), own in zip(self._pairs, packed, strict=True):
            pairs.setdefault(left, {})[right] = b64encode(own.tobytes()).decode()
            rounded.setdefault(left, {})[right] = float(f"{variances[left, right]:.4g}")
        return PresentLevels(
            until_at=until_at,
            observed_at=self._observed_at,
            weights=tuple(np.round(self._weights, 4).ravel().tolist()),
            visits=tuple(np.round(self._visits, 3).tolist()),
            products=(round(products[0], 3), round(products[1], 4)),
            pairs=pairs,
            variances=rounded,
        )


def _steady(share: Reals, kept: Reals) -> tuple[Reals, Reals]:
    """Return the variance of a prediction and the gain of the steady Kalman filter of white noise beside a share of
    autocorrelated noise, in units of the variance of both.
    """
    white, fresh = 1 - share, share * (1 - kept**2)
    half = (white * (1 - kept**2) - fresh) / 2
    ahead = np.sqrt(half**2 + fresh * white) - half
    return ahead + white, ahead / (ahead + white)


def _part(value: Reals | float, *, none: float, whole: float) -> Reals:
    """Return how far a value is on the way from `none`, 0, to `whole`, 1."""
    return np.asarray(np.clip((value - none) / (whole - none), 0.0, 1.0))


_ARE_OFTEN = _part(np.log(_HAZARDS), none=np.log(_SELDOM), whole=np.log(_OFTEN))
_BYTES_PER_LOG, _BYTES_PER_DEVIATION, _ZERO, _NEVER = 20.0, 50.0, 128, 255
# Less probable levels are stored as impossible, and without a deviation: most of them are.
_LEAST_PROBABILITY = 0.002

# The length of the text of a pair: two bytes of each level, by kind of noise and hazard.
_PACKED_LENGTH = -(-2 * prod(_SHAPE) // 3) * 4
_LEVEL_OF: Reals = np.append(np.exp(-np.arange(_NEVER) / _BYTES_PER_LOG), 0.0)
_DEVIATION_OF: Reals = (np.arange(256) - _ZERO) / _BYTES_PER_DEVIATION
