"""A world of LLM providers with known timing: for the demo, the tests, and the calibration of a vantage.

From the request to the bytes: `connection` stamps what arrives, `service` finds model and dialect, `pace` and `speech`
decide what is said when, `faults` spoils it, `timeline` turns it into frames with absolute instants, `player` writes
them, `truth` keeps what really happened.
"""
