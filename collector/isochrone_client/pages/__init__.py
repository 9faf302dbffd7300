"""Answers to pages: which question each answer settles, and in which columns people read it. Pure."""
