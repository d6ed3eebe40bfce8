"""How a step says that it must wait, cannot succeed, or is no longer its worker's to run."""


class Again(Exception):  # noqa: N818 - a request to be called later, not a fault
    """Run the workflow again in `after_s` seconds; finished steps are not repeated."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"again in {after_s} s")
        self.after_s = after_s


class GiveUp(Exception):  # noqa: N818 - a decision, not a fault
    """No retry can help; `reason` is a sentence the owner may read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LeaseLost(Exception):  # noqa: N818 - a fact about the lease
    """Another worker holds the operation now: stop and write nothing."""
