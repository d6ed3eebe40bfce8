"""Who gets which alerts by email, when, and how often."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.workflows.events.alerted import alerts, look
from contract_tests.workflows.letters import Letters
from contract_tests.workflows.stage import Stage
from control.events import raise_, resolve
from control.policy.alert_kinds import EMAIL_EVERY
from control.workflows.events import alert_mail
from storage.access import memberships, organizations, team_members, teams, users
from storage.access.organizations import Organization
from storage.database import now
from storage.events.alerts import Alert
from storage.instances.instances import Instance

LEADS = ["admin@example.com", "owner@example.com"]
PEOPLE = ("owner", "admin", "developer", "member", "auditor")


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """With somebody of each role, and in the team Blue a member who leads it."""
    with stage.database.write() as db:
        blue = teams.create(db, stage.org_id, {"name": "Blue", "slug": "blue"})
        for role in PEOPLE:
            user = users.create(db, email=f"{role}@example.com", name=role)
            memberships.create(db, stage.org_id, user.id, role)
        for name, team_role in (("lead", "admin"), ("hand", "operator")):
            user = users.create(db, email=f"{name}@example.com", name=name)
            held = memberships.create(db, stage.org_id, user.id, "member")
            team_members.put(db, blue, held, team_role)
    return stage


def blue(stage: Stage) -> Instance:
    with stage.database.read() as db:
        rows = select(teams.Team.id).where(teams.Team.org_id == stage.org_id)
        team_id = db.scalars(rows.where(teams.Team.slug == "blue")).one()
    return stage.instance("running", team_id=team_id)


def fails(stage: Stage, instance: Instance, severity: str = "critical", title: str = "") -> None:
    with stage.database.write() as db:
        held = db.get_one(Instance, instance.id)
        raise_(db, held, "instance_failed", severity, title or "{name} has failed", "it crashed")


def sent(stage: Stage) -> list[str]:
    """To whom, of what was sent since the last look."""
    mailer = stage.services.mailer
    assert isinstance(mailer, Letters)
    found = sorted(letter.to for letter in mailer.sent.values())
    mailer.sent.clear()
    return found


def texts(stage: Stage) -> dict[str, str]:
    mailer = stage.services.mailer
    assert isinstance(mailer, Letters)
    return {letter.to: letter.text for letter in mailer.sent.values()}


def mail(stage: Stage) -> list[str]:
    look(stage, "alerts.mail")
    return sent(stage)


def later(stage: Stage) -> None:
    stage.pass_time(EMAIL_EVERY.total_seconds() + 1)


def test_leads_of_the_organization_get_all_and_leads_of_a_team_its_own(stage: Stage) -> None:
    fails(stage, stage.instance("running"))
    assert mail(stage) == LEADS
    assert mail(stage) == []
    later(stage)
    assert mail(stage) == []
    fails(stage, blue(stage))
    look(stage, "alerts.mail")
    (alert,) = [one for one in alerts(stage) if one.title in texts(stage)["lead@example.com"]]
    assert alert.title.startswith(str(alert.instance_id))
    assert sent(stage) == ["admin@example.com", "lead@example.com", "owner@example.com"]


def test_nobody_of_a_team_is_told_of_what_is_not_theirs(stage: Stage) -> None:
    theirs, other = blue(stage), stage.instance("running")
    fails(stage, theirs)
    fails(stage, other)
    look(stage, "alerts.mail")
    found = texts(stage)
    assert theirs.name in found["lead@example.com"]
    assert other.name not in found["lead@example.com"]
    assert theirs.name in found["owner@example.com"]
    assert other.name in found["owner@example.com"]


def test_many_at_once_are_one_letter_and_more_wait_for_the_next(stage: Stage) -> None:
    instances = [stage.instance("running") for _ in range(30)]
    for each in instances[:1]:
        fails(stage, each)
    assert mail(stage) == LEADS
    for each in instances[1:]:
        fails(stage, each)
    assert mail(stage) == []
    later(stage)
    look(stage, "alerts.mail")
    text = texts(stage)["owner@example.com"]
    assert text.count("- critical: ") == 20
    assert "and 9 more." in text
    assert sent(stage) == LEADS


def test_what_is_critical_is_not_cut_off_a_letter_of_many_milder(stage: Stage) -> None:
    change(stage, "warning")
    for _ in range(21):
        fails(stage, stage.instance("running"), "warning")
    worst = stage.instance("running")
    fails(stage, worst, "critical")
    look(stage, "alerts.mail")
    text = texts(stage)["owner@example.com"]
    assert f"- critical: {worst.name} has failed" in text
    assert text.count("- warning: ") == 19
    assert "and 2 more." in text


def test_what_is_critical_waits_behind_nothing_milder(stage: Stage) -> None:
    change(stage, "warning")
    fails(stage, stage.instance("running"), "warning")
    assert mail(stage) == LEADS
    fails(stage, stage.instance("running"), "warning")
    assert mail(stage) == []
    fails(stage, stage.instance("running"), "critical")
    look(stage, "alerts.mail")
    text = texts(stage)["owner@example.com"]
    assert text.count("- critical: ") == text.count("- warning: ") == 1
    assert sent(stage) == LEADS
    # Yet a flood of critical ones is no flood of letters.
    fails(stage, stage.instance("running"), "critical")
    assert mail(stage) == []
    later(stage)
    assert mail(stage) == LEADS


def test_an_organization_that_cannot_be_written_to_holds_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage.database.write() as db:
        other = organizations.create(db, name="Other", slug="other", plan="free")
        raise_(db, other, "quota_threshold", "critical", "{name}", "why", cause="seats")
    fails(stage, stage.instance("running"))
    send = alert_mail._send

    def failing(db: Any, services: Any, org_id: str) -> None:
        if org_id == other.id:
            raise ValueError("it is not as it must be")
        send(db, services, org_id)

    monkeypatch.setattr(alert_mail, "_send", failing)
    assert mail(stage) == LEADS


def change(stage: Stage, choice: str) -> None:
    with stage.database.write() as db:
        db.get_one(Organization, stage.org_id).alert_emails = choice


@pytest.mark.parametrize(
    ("choice", "severities"),
    [
        ("critical", {"critical"}),
        ("warning", {"critical", "warning"}),
        ("none", set()),
    ],
)
def test_the_organization_chooses(stage: Stage, choice: str, severities: set[str]) -> None:
    change(stage, choice)
    for severity in ("info", "warning", "critical"):
        fails(stage, stage.instance("running"), severity)
        assert (mail(stage) == LEADS) is (severity in severities)
        later(stage)


def test_it_is_sent_again_only_when_it_is_worse(stage: Stage) -> None:
    change(stage, "warning")
    instance = stage.instance("running")
    for severity, told in (
        ("warning", True),
        ("warning", False),
        ("critical", True),
        ("critical", False),
    ):
        fails(stage, instance, severity)
        assert bool(mail(stage)) is told
        later(stage)


def acknowledged(stage: Stage) -> None:
    with stage.database.write() as db:
        db.scalars(select(Alert)).one().acknowledge("usr_1", now(db))


def over(stage: Stage) -> None:
    with stage.database.write() as db:
        instance = db.scalars(select(Instance)).one()
        resolve(db, instance, ["instance_failed"])


def closed(stage: Stage) -> None:
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).close(now(db))


@pytest.mark.parametrize("done", [acknowledged, over, closed])
def test_what_needs_nobody_any_more_is_not_sent(
    stage: Stage, done: Callable[[Stage], None]
) -> None:
    fails(stage, stage.instance("running"))
    done(stage)
    assert mail(stage) == []
    later(stage)
    assert mail(stage) == []


def test_a_suspended_key_has_a_letter_of_its_own(stage: Stage) -> None:
    with stage.database.write() as db:
        org = organizations.fetch(db, stage.org_id)
        raise_(db, org, "api_key_suspended", "critical", "so it is", "why", cause="key_1")
    assert mail(stage) == []


def test_no_name_leaves_its_place_in_the_letter(stage: Stage) -> None:
    """Names are of tenants: in none a mail program finds a link or a line of ours."""
    hostile = 'x"\n\nSign in at https://evil.example/ <b>now</b>'
    with stage.database.write() as db:
        db.get_one(Organization, stage.org_id).name = hostile
    fails(stage, stage.instance("running"), title=hostile)
    look(stage, "alerts.mail")
    mailer = stage.services.mailer
    assert isinstance(mailer, Letters)
    letter = mailer.last
    whole = letter.subject + letter.text
    assert "https://evil" not in whole
    assert "<b>" not in whole
    assert "\n\nSign in" not in whole
    assert "\n" not in letter.subject
