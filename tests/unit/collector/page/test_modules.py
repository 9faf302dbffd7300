"""The JavaScript modules of the live page."""

from fixtures.node import PageModules


def test_pure_functions(page_modules: PageModules) -> None:
    """The tests of the state, the formats, the colours and the models of the views pass."""
    assert "# fail 0" in page_modules.test()


def test_types(page_modules: PageModules) -> None:
    """The modules have the types that their comments state."""
    page_modules.check_types()
