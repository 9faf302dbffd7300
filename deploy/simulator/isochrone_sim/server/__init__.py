"""The simulator's HTTP server: connections, requests, playback, and the record of what was sent."""
