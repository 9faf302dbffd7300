"""Plans: the document and its schema, differences, cost, routes, and the plan in force."""
