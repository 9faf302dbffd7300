"""Route tables and what stands behind them over HTTP: JSON, long polls and server-sent events. See docs/routing.md."""
