"""What a check found, and how grave it is."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "note", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """A `failure` keeps something from working; a `warning` lessens confinement or may fail later.

    A `note` is a choice: an engine that is not installed, a service that does not run.
    """

    check: str
    status: Status
    detail: str
    remedy: str | None = None


def report(findings: list[Finding]) -> dict[str, Any]:
    """As JSON; `status` is that of the gravest."""
    order: list[Status] = ["ok", "note", "warning", "failure"]
    gravest = max((order.index(each.status) for each in findings), default=0)
    return {"status": order[gravest], "findings": [asdict(each) for each in findings]}


def text(findings: list[Finding]) -> str:
    """For people: a line each, and what mends it below."""
    lines = []
    for each in findings:
        lines.append(f"{each.status:8} {each.check}: {each.detail}")
        if each.remedy:
            lines.append(f"{'':8} -> {each.remedy}")
    return "\n".join(lines)


def exit_status(findings: list[Finding], *, strict: bool) -> int:
    """1 where something does not work; where `strict`, for warnings too."""
    bad = {"failure", "warning"} if strict else {"failure"}
    return int(any(each.status in bad for each in findings))
