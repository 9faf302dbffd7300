"""Outages in which requests hang, from the simulator to the answers of a collector."""

from bench import outages


def test_every_answer_shows_the_share_of_outages_in_which_requests_hang() -> None:
    """Coverage, leaderboard, SLO and routes show it at every interval; without the rounds that hung requests block it
    would be 12 points less at the shortest one. In a single outage of five seconds the longest interval has one or two
    rounds, of 14 in all, so that it may show 7 % instead of 16.7 %.
    """
    assert outages.main(["--cycles", "1", "--speed", "20", "--routes", "1", "--points", "11"]) == 0
