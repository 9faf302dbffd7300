"""Responses as bytes with instants: speech, frames and timelines."""
