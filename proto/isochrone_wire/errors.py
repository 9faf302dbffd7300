class IsochroneError(Exception):
    """A sentence that states what is wrong. `hint` names what would help, or is empty. A command that ends with one
    prints both and exits with `exit_code`: 1 failed, 2 usage, 3 unreachable, 4 undecided or insufficient data.
    """

    exit_code: int = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
