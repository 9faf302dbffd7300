"""Export of samples to a file: all samples of a selection, with all fields."""
