"""Billing as JSON and as lines of a file."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from control.billing.spending import Committed
from control.billing.usage_rows import CostRow, UsageRow
from control.policy import budgets
from control.policy.months import Month
from control.policy.prices import MICRO_CENTS, whole_cents
from control.policy.rating import UNITS, Charge
from handlers.instants import timestamp
from storage.access.organizations import Organization
from storage.access.teams import TeamNames

Json = dict[str, Any]
CSV_COLUMNS: Final = (
    *("month", "cost_centre", "team_id", "team", "metric", "unit", "quantity"),
    *("cost", "forecast", "currency"),
)
_NOTHING: Final = Charge(0, 0)


def span(of: tuple[datetime, datetime], granularity: str, group_by: str, currency: str) -> Json:
    since, until = of
    return {
        "from": timestamp(since),
        "to": timestamp(until),
        "granularity": granularity,
        "group_by": group_by,
        "currency": currency,
    }


def usage_rows(rows: Iterable[UsageRow], names: Mapping[str, str]) -> list[Json]:
    return [
        {
            "begin": timestamp(row.begin),
            "end": timestamp(row.end),
            "group": row.group,
            "name": None if row.group is None else names.get(row.group),
            "micro_cents": row.micro_cents,
            "metrics": [
                {**_metric(metric, charge), "micro_cents": charge.micro_cents}
                for metric, charge in _in_order(row.charges)
            ],
        }
        for row in rows
    ]


def cost_head(month: Month, currency: str, rows: Sequence[CostRow], now: datetime) -> Json:
    return {
        "month": month.name,
        "currency": currency,
        "as_of": timestamp(min(now, month.end)),
        "is_over": now >= month.end,
        "micro_cents": sum(_sum(row.so_far) for row in rows),
        "forecast_micro_cents": sum(_sum(row.forecast) for row in rows),
    }


def cost_row(known: TeamNames, row: CostRow) -> Json:
    team = known.get(row.team_id or "")
    return {
        "team_id": row.team_id,
        "name": team and team.name,
        "cost_centre": team and team.cost_centre,
        "micro_cents": _sum(row.so_far),
        "forecast_micro_cents": _sum(row.forecast),
        "metrics": [
            {
                **_metric(metric, row.so_far.get(metric, _NOTHING)),
                "micro_cents": row.so_far.get(metric, _NOTHING).micro_cents,
                "forecast_micro_cents": charge.micro_cents,
            }
            for metric, charge in _in_order({**row.so_far, **row.forecast})
        ],
    }


def csv_lines(
    month: Month, currency: str, known: TeamNames, row: CostRow
) -> Iterable[tuple[str, ...]]:
    """One for each metric; amounts in the currency, with eight decimals."""
    team = known.get(row.team_id or "")
    whose = ((team and team.cost_centre) or "", row.team_id or "", team.name if team else "")
    for metric, forecast in _in_order({**row.so_far, **row.forecast}):
        charge = row.so_far.get(metric, _NOTHING)
        costs = decimal(charge.micro_cents), decimal(forecast.micro_cents)
        used = metric, UNITS[metric], str(charge.quantity)
        yield (month.name, *whose, *used, *costs, currency)


def chosen_cap(org: Organization) -> Json:
    return {
        "monthly_amount_cents": org.spending_cap_cents,
        "on_reach": org.spending_cap_on_reach,
    }


def spending_cap(org: Organization, currency: str, of: Committed, now: datetime) -> Json:
    cap_cents = org.spending_cap_cents
    left = None if cap_cents is None else max(0, whole_cents(cap_cents * MICRO_CENTS - of.total))
    return {
        "org_id": org.id,
        "month": of.month.name,
        "as_of": timestamp(now),
        "currency": currency,
        **chosen_cap(org),
        "month_to_date_cents": whole_cents(of.spent),
        "committed_cents": whole_cents(of.total),
        "left_cents": left,
        "used_percent": budgets.used_percent(of.spent, cap_cents),
    }


def decimal(micro_cents: int) -> str:
    """In the currency, exactly: 123456789 micro-cents are 1.23456789."""
    sign, amount = ("-", -micro_cents) if micro_cents < 0 else ("", micro_cents)
    whole, rest = divmod(amount, 100 * MICRO_CENTS)
    return f"{sign}{whole}.{rest:08d}"


def _metric(metric: str, charge: Charge) -> Json:
    return {"metric": metric, "unit": UNITS[metric], "quantity": charge.quantity}


def _in_order(charges: Mapping[str, Charge]) -> list[tuple[str, Charge]]:
    return [(metric, charges[metric]) for metric in UNITS if metric in charges]


def _sum(charges: Mapping[str, Charge]) -> int:
    return sum(charge.micro_cents for charge in charges.values())
