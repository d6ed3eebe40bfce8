"""Nobody raises themselves or others: whatever members do with roles, in any order.

The model is what everybody held before a step. Whoever holds more after it got nothing that the
one who took the step did not hold in that place, then.
"""

from typing import Any, Final

import httpx
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from contract_tests.api import letters
from contract_tests.api.access.team_helpers import everyone, team
from contract_tests.api.harness import House, Person, Tenant
from control.boundary import callers
from control.policy.permissions import ALL, PROJECT_ROLES, ROLES, TEAM, TEAM_ROLES
from control.policy.rights import NOTHING, Rights
from specserver import Problem
from storage.access.scopes import RecordPlace
from storage.roles import roles
from storage.sso import scim_groups, scim_users

POWERS: Final = sorted(
    {
        *("roles:write", "members:write", "service-accounts:write", "api-keys:write"),
        *("team:write", "project-members:write", "org:read", "sso:write"),
    }
)
"""What those at work may have beside their role: what leads to giving and taking."""
some = st.integers(0, 997)
"""Which of those that there are: the remainder says."""
org_roles = st.sampled_from([one for one in ROLES if one != "owner"])
sets = st.lists(st.sampled_from([*POWERS, *sorted(ALL)]), min_size=1, max_size=3, unique=True)
scopes = st.none() | sets
Held = dict[str, frozenset[str]]
STEPS: Final = {
    *("roles.create", "role_assignments.create", "members.update", "team_members.set"),
    *("team_members.remove", "project_members.set", "predefined_roles.update"),
    *("predefined_roles.reset", "api_keys.create", "service_accounts.create"),
    *("service_accounts.create_key", "invites.create", "invites.accept", "scim_groups.update"),
}


class Raising(RuleBasedStateMachine):
    """Everybody at work has a token, and what they hold is what the boundary makes of it."""

    house: House
    done: set[str]
    """Which steps somebody who is no owner has taken with success."""

    def __init__(self) -> None:
        super().__init__()
        self.tenant: Tenant = self.house.tenant(plan="enterprise")
        self.tokens: list[str] = []
        self.ids: list[str] = []
        self.roles: list[str] = []
        self.accounts: list[str] = []
        self.invited: list[tuple[str, str, Person]] = []
        self.count = 0

    @initialize(
        given=st.lists(
            st.tuples(org_roles, st.sets(st.sampled_from(POWERS))), min_size=4, max_size=4
        )
    )
    def found(self, given: list[tuple[str, set[str]]]) -> None:
        """A team beside Everyone, a project in each, and members who can do a little each."""
        tenant, house = self.tenant, self.house
        self.teams = [everyone(tenant), team(house, tenant)]
        body = {"name": "Blue", "team_id": self.teams[1].rpartition("/")[2]}
        blue = house.post(f"{tenant.path}/projects", tenant.key, json=body).json()["id"]
        self.projects = [tenant.project_id, blue]
        self.places = {
            "everyone": RecordPlace(self.teams[0].rpartition("/")[2]),
            "blue": RecordPlace(body["team_id"]),
            "project": RecordPlace(self.teams[0].rpartition("/")[2], tenant.project_id),
            "blue project": RecordPlace(body["team_id"], blue),
        }
        self._join(tenant.owner)
        for org_role, powers in given:
            person = house.member(tenant.org_id, org_role, mfa=True)
            by = {"created_by": tenant.owner.id}
            with house.database.write() as db:
                made = roles.create(db, tenant.org_id, name=person.id, permissions=powers, **by)
                roles.assign(db, made, person.id, None, **by)
            self.roles.append(made.id)
            self._join(person)
        # What others can reach for: a service account that can do nearly everything.
        account = {"name": "strong", "role": "admin"}
        made = house.post(f"{tenant.path}/service-accounts", tenant.key, json=account).json()
        self._add_account(made)
        self.groups = [self._pushed_group(name) for name in ("one", "two")]
        self.before = self._all_held()

    def _pushed_group(self, name: str) -> str:
        """The id of a group of an identity provider with everybody in it; nothing is given yet."""
        with self.house.database.write() as db:
            org_id = self.tenant.org_id
            group = scim_groups.create(db, org_id, name, external_id=None, is_pushed=True)
            people = [one for one in self.ids if one.startswith("usr_")]
            for user_id in people:
                if scim_users.find(db, org_id, user_id) is None:
                    scim_users.create(db, org_id, user_id, user_id, made_account=False)
            db.flush()
            scim_groups.put_members(db, group, people)
            return group.id

    def _join(self, person: Person) -> None:
        self.ids.append(person.id)
        self.tokens.append(self.house.session(person.id, mfa=True))

    def _add_account(self, made: dict[str, Any]) -> None:
        self.ids.append(made["id"])
        self.accounts.append(made["id"])
        self.tokens.append(made["api_key"]["key"])

    @rule(by=some, held=sets)
    def make_role(self, by: int, held: list[str]) -> None:
        answer = self._post(by, "roles", {"name": self._name(), "permissions": held})
        if answer.is_success:
            self.roles.append(answer.json()["id"])
        self._check("roles.create", answer)

    @rule(by=some, which=some, to=some, place=st.sampled_from([None, 0, 1]))
    def give_role(self, by: int, which: int, to: int, place: int | None) -> None:
        role_id = self.roles[which % len(self.roles)]
        body = {"user_id": self._of(self.ids, to)}
        if place is not None:
            body["team_id"] = self.teams[place].rpartition("/")[2]
        answer = self._post(by, f"roles/{role_id}/assignments", body)
        self._check("role_assignments.create", answer)

    @rule(by=some, to=some, role=org_roles | st.just("owner"))
    def change_member(self, by: int, to: int, role: str) -> None:
        path = f"members/{self._of(self.ids, to)}"
        answer = self._request("PATCH", by, path, {"role": role})
        self._check("members.update", answer)

    @rule(by=some, to=some, place=st.sampled_from([0, 1]), role=st.sampled_from([*TEAM_ROLES]))
    def put_into_team(self, by: int, to: int, place: int, role: str) -> None:
        path = f"teams/{self._team_id(place)}/members/{self._of(self.ids, to)}"
        answer = self._request("PUT", by, path, {"role": role})
        self._check("team_members.set", answer)

    @rule(by=some, to=some, place=st.sampled_from([0, 1]))
    def take_from_team(self, by: int, to: int, place: int) -> None:
        path = f"teams/{self._team_id(place)}/members/{self._of(self.ids, to)}"
        self._check("team_members.remove", self._request("DELETE", by, path))

    @rule(by=some, to=some, which=some, role=st.sampled_from([*PROJECT_ROLES]))
    def put_into_project(self, by: int, to: int, which: int, role: str) -> None:
        path = f"projects/{self._of(self.projects, which)}/members/{self._of(self.ids, to)}"
        answer = self._request("PUT", by, path, {"role": role})
        self._check("project_members.set", answer)

    @rule(
        by=some,
        which=some,
        org_role=org_roles | st.none(),
        place=st.sampled_from([None, 0, 1]),
        role=st.sampled_from([*TEAM_ROLES]),
    )
    def give_by_group(
        self, by: int, which: int, org_role: str | None, place: int | None, role: str
    ) -> None:
        given = None if place is None else {"team_id": self._team_id(place), "role": role}
        path = f"sso/scim-groups/{self._of(self.groups, which)}"
        answer = self._request("PATCH", by, path, {"org_role": org_role, "team": given})
        self._check("scim_groups.update", answer)

    @rule(by=some, role=org_roles, held=sets)
    def change_predefined_role(self, by: int, role: str, held: list[str]) -> None:
        path = f"predefined-roles/{role}"
        answer = self._request("PATCH", by, path, {"permissions": held})
        self._check("predefined_roles.update", answer)

    @rule(by=some, role=st.sampled_from([*TEAM_ROLES]), held=sets)
    def change_team_role(self, by: int, role: str, held: list[str]) -> None:
        path = f"predefined-roles/{role}?scope=team"
        body = {"permissions": sorted(TEAM & set(held))}
        answer = self._request("PATCH", by, path, body)
        self._check("predefined_roles.update", answer)

    @rule(by=some, role=org_roles)
    def reset_predefined_role(self, by: int, role: str) -> None:
        answer = self._request("POST", by, f"predefined-roles/{role}/actions/reset")
        self._check("predefined_roles.reset", answer)

    @rule(by=some, role=st.sampled_from([*ROLES]), held=scopes)
    def make_key(self, by: int, role: str, held: list[str] | None) -> None:
        body = {"name": self._name(), "role": role} | ({} if held is None else {"scopes": held})
        answer = self._post(by, "api-keys", body)
        if answer.is_success:
            self.tokens.append(answer.json()["key"])
        self._check("api_keys.create", answer)

    @rule(by=some, role=org_roles)
    def make_service_account(self, by: int, role: str) -> None:
        answer = self._post(by, "service-accounts", {"name": self._name(), "role": role})
        if answer.is_success:
            self._add_account(answer.json())
        self._check("service_accounts.create", answer)

    @rule(by=some, which=some, held=scopes)
    def make_key_of_service_account(self, by: int, which: int, held: list[str] | None) -> None:
        body = {"name": self._name()} | ({} if held is None else {"scopes": held})
        answer = self._post(by, f"service-accounts/{self._of(self.accounts, which)}/keys", body)
        if answer.is_success:
            self.tokens.append(answer.json()["key"])
        self._check("service_accounts.create_key", answer)

    @rule(by=some, role=org_roles | st.just("owner"))
    def invite(self, by: int, role: str) -> None:
        person = self.house.person(mfa=True)
        answer = self._post(by, "invites", {"email": person.email, "role": role})
        if answer.is_success:
            token = letters.token_of_last(self.house)
            self.invited.append((self.actor, token, person))
        self._check("invites.create", answer)

    @rule(which=some)
    def accept(self, which: int) -> None:
        """By whoever was invited, who has what whoever invited them has now, at most."""
        if not self.invited:
            return
        self.actor, token, person = self.invited.pop(which % len(self.invited))
        answer = self.house.post(f"/v1/invites/{token}/accept", person.session)
        if answer.is_success:
            self._join(person)
        self._check("invites.accept", answer)

    # What is asked and what is held.

    def _of(self, listed: list[str], which: int) -> str:
        return listed[which % len(listed)]

    def _team_id(self, place: int) -> str:
        return self.teams[place].rpartition("/")[2]

    def _name(self) -> str:
        self.count += 1
        return f"no {self.count}"

    def _post(self, by: int, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._request("POST", by, path, body)

    def _request(
        self, method: str, by: int, path: str, body: dict[str, Any] | None = None
    ) -> httpx.Response:
        options = {} if body is None else {"json": body}
        self.actor = self._of(self.tokens, by)
        return self.house.request(method, f"{self.tenant.path}/{path}", self.actor, **options)

    def _check(self, step: str, answer: httpx.Response) -> None:
        """Call it once all that the step has made is known."""
        assert answer.status_code < 500, answer.text
        own, after = self.before[self.actor], self._all_held()
        for token, held in after.items():
            was = self.before.get(token, {})
            for place, now in held.items():
                gained = now - was.get(place, frozenset()) - own.get(place, frozenset())
                assert not gained, (step, place, sorted(gained))
        if answer.is_success and own["org"] != ALL:
            self.done.add(step)
        if own["org"] == ALL:
            # Or what refuses everybody would pass.
            assert answer.status_code != 403, answer.text
        self.before = after

    def _all_held(self) -> dict[str, Held]:
        with self.house.database.read() as db:
            return {token: self._held(self._rights(db, token)) for token in self.tokens}

    def _rights(self, db: Any, token: str) -> Rights:
        try:
            admission = callers.admit(
                db, self.house.database, token, org_id=self.tenant.org_id, mfa_ttl_s=900
            )
        except Problem:
            return NOTHING
        caller = admission.caller
        return NOTHING if caller is None or admission.org is None else caller.rights

    def _held(self, rights: Rights) -> Held:
        found = {place: rights.held_at(where) for place, where in self.places.items()}
        return {"org": rights.everywhere, **found}


def run(house: House, examples: int, steps: int, *, drawn: bool) -> set[str]:
    machine: Any = type("Raising", (Raising,), {"house": house, "done": set()})
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not drawn,
        database=None,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(machine, settings=chosen)
    done: set[str] = machine.done
    return done


def test_nobody_raises_anybody(house: House) -> None:
    done = run(house, examples=6, steps=40, drawn=False)
    assert len(done) >= 8, "too few steps of the machine succeed for it to find anything"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_nobody_raises_anybody_at_length(house: House) -> None:
    assert run(house, examples=150, steps=40, drawn=True) == STEPS
