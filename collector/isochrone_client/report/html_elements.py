"""Construction of HTML that is safe by design: all text is escaped when it is inserted, and all elements are closed."""

import html

from isochrone_wire.text import printable

# Void elements of HTML, and empty elements of SVG.
_VOID = frozenset({"meta", "link", "wbr"})
_EMPTY = frozenset({"rect", "line", "circle", "path"})
Attribute = str | int | float | None


class Markup(str):
    """Text that is already HTML; only `element` and `joined` create it."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: Attribute) -> Markup:
    """One element. Attributes and children that are not `Markup` are escaped; attributes that are `None` are omitted.

    In names of attributes, a trailing underscore is removed and the others become hyphens: `class_`, `aria_label`.
    Names are not escaped: they have to be constants.
    """
    rendered = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID | _EMPTY:
        return Markup(f"<{name}{rendered}/>" if name in _EMPTY else f"<{name}{rendered}>")
    return Markup(f"<{name}{rendered}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """The children concatenated; those that are not `Markup` are escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escaped(child) for child in children))


def escaped(text: str) -> Markup:
    """The text escaped for HTML, without control characters."""
    return Markup(html.escape(printable(text), quote=True))


def breakable(name: str) -> Markup:
    """A name that may be broken after a slash."""
    first, *others = name.split("/")
    return joined(first, *(piece for other in others for piece in ("/", element("wbr"), other)))
