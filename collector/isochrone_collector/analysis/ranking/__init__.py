"""Rankings: leaderboards, latency targets, price tiers and the cost of a region."""
