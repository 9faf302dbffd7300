"""Members of route tables in the terms of gateways."""

import pytest

from isochrone_common.gateways import key_variable


@pytest.mark.parametrize(
    ("name", "variable"), [("deepseek", "DEEPSEEK_API_KEY"), ("azure-sweden.2", "AZURE_SWEDEN_2_API_KEY")]
)
def test_variables_of_keys(name: str, variable: str) -> None:
    """The name of a credential becomes a valid environment variable."""
    assert key_variable(name) == variable
