"""Route decisions against simple rules, in worlds whose levels change."""
