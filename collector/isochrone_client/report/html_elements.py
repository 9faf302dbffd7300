"""HTML that cannot be broken out of: every text is escaped where it is put in, and elements close where they opened."""

import html

from isochrone_wire.text import printable

# Elements of HTML and of SVG that hold nothing.
_VOID = frozenset({"meta", "link", "wbr"})
_EMPTY = frozenset({"rect", "line", "circle"})
Attribute = str | int | float | None


class Markup(str):
    """Text that is HTML already, made by `element` and `joined` only."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: Attribute) -> Markup:
    """One element. Children that are not `Markup` are escaped; so are attributes, of which `None` are left out.

    A trailing underscore of an attribute's name goes, the others become hyphens: `class_`, `aria_label`. `name` and the
    names of attributes are ours and never come from outside.
    """
    spoken = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID | _EMPTY:
        return Markup(f"<{name}{spoken}/>" if name in _EMPTY else f"<{name}{spoken}>")
    return Markup(f"<{name}{spoken}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """The children one after another, escaped where they are no `Markup`."""
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children))


def escaped(text: str) -> Markup:
    """The text as HTML shows it, without control characters."""
    return Markup(html.escape(printable(text), quote=True))
