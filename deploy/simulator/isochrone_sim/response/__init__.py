"""Responses as bytes with instants: answer scripts, frames and timelines."""
