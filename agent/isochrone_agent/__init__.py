"""The instrument: bytes and instants become Samples."""
