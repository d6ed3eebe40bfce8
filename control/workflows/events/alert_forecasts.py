"""Forecasts: rules of alerts about what changes over days."""

from typing import Final

from control.work import Operation, Schedule, workflow
from control.workflows.events.alert_evaluation import evaluate_all
from control.workflows.events.alert_rules import SELDOM


@workflow("alerts.forecast", deadline_s=600)
def forecast(op: Operation) -> None:
    evaluate_all(op.database, SELDOM)


SCHEDULE: Final = Schedule("alert_forecasts", forecast, every_s=900)
