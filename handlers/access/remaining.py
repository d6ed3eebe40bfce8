"""What a project or a team still has, and so cannot be deleted."""


def instances(by_status: dict[str, int]) -> list[str]:
    """Instances that are not erased: how many, and what to do about them."""
    kept = by_status.get("deleted", 0)
    leaving = sum(by_status.get(status, 0) for status in ("deleting", "erasing"))
    live = sum(by_status.values()) - kept - leaving
    reasons = {
        f"{live} running or paused (delete or erase them)": live,
        f"{leaving} being deleted or erased (wait)": leaving,
        f"{kept} deleted with their data retained (erase them, or wait until purge_after)": kept,
    }
    return [reason for reason, count in reasons.items() if count]
