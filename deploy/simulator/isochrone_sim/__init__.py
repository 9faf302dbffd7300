"""Simulated LLM providers with known timing, for the demo, the tests, and the calibration of a vantage.

From the request to the bytes: `server.connection` timestamps what arrives, `server.service` selects model and dialect,
`world.token_timing` and `response.answer_script` decide the tokens and their instants, `faults` alters the script,
`response.timeline` turns it into frames with absolute instants, `server.player` writes them, and `server.ground_truth`
records what was sent.
"""
