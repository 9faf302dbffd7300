"""The colours of the page by the definition of contrast in WCAG 2.2, in both themes, from its style sheet."""

import re
from importlib import resources
from itertools import product

import pytest

CSS = (resources.files("isochrone_common") / "page" / "page.css").read_text()
LIGHT, DARK = 0, 1
GRAPHICS, TEXT = 3.0, 4.5
_COLOUR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")


def colours(selector: str) -> dict[str, tuple[str, str]]:
    """Return the colours that the rule of a selector defines, light and dark."""
    _, _, rule = CSS.partition(f"\n{selector} {{")
    return {name: (light, dark) for name, light, dark in _COLOUR.findall(rule.partition("}")[0])}


PAGE = colours(":root")
MAP = colours(".map, .of-map")
STEPS = [f"step{place}" for place in range(6)]
PARTS = [f"part{place}" for place in range(8)]
FILLS = [f"{kind}{size}" for kind in ("worse", "better") for size in (1, 2, 3)]
(BORDER,) = re.findall(r"\.swatch \{[^}]*border: 1px solid var\(--([\w-]+)\)", CSS)
MARKS = [BORDER, *("link", "good", "bad", "warn", "ink"), *PARTS]


def luminance(colour: str) -> float:
    """Return the relative luminance, of 0 for black and 1 for white."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the ratio, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_ratio_is_that_of_the_definition() -> None:
    """Black on white has 21, and the published lightest grey for texts on white just more than 4.5."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize(("step", "ground"), [*product(STEPS, ("land", "well"))])
def test_every_mark_of_the_map_is_seen(theme: int, step: str, ground: str) -> None:
    """Of the best region as of the worst, on land and on the sea."""
    assert contrast(MAP[step][theme], PAGE[ground][theme]) >= GRAPHICS


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize(("mark", "ground"), [*product(MARKS, ("paper", "well"))])
def test_lines_parts_and_borders_of_swatches_are_seen(theme: int, mark: str, ground: str) -> None:
    """What has no text beside it differs from the ground."""
    assert contrast(PAGE[mark][theme], PAGE[ground][theme]) >= GRAPHICS


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("kind", ["worse3", "better3"])
def test_the_largest_differences_are_seen(theme: int, kind: str) -> None:
    """Their cells differ from the page without a border."""
    assert contrast(PAGE[kind][theme], PAGE["paper"][theme]) >= GRAPHICS


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_texts_on_colours_are_read(theme: int) -> None:
    """Each colour of a cell has the ink that is used on it."""
    inks = (
        dict.fromkeys(FILLS, "ink") | dict.fromkeys(STEPS[:4], "step-ink") | dict.fromkeys(STEPS[4:], "step-ink-strong")
    )
    found = {fill: contrast(PAGE[fill][theme], PAGE[ink][theme]) for fill, ink in inks.items()}
    assert {fill: ratio for fill, ratio in found.items() if ratio < TEXT} == {}
