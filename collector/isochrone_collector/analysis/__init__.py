"""Analysis of samples, pure: numbers in, numbers out."""
