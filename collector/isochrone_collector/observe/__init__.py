"""What readers ask, a module per question. SQL selects, pure modules estimate.

Every question is a function of a `Desk` and a selection. All raise `BadRequest`, `UnknownName` and
`DatabaseUnavailable`.
"""
