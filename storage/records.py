"""Every record in one place, so that the metadata is whole before anything reads it."""

from storage.api_keys import ApiKey
from storage.audit import AuditEntry
from storage.cells import Cell
from storage.changes import Change
from storage.columns import Record
from storage.domains import Domain
from storage.events import Event, EventCount
from storage.instances import Instance
from storage.memberships import Membership
from storage.networks import Network
from storage.one_time_urls import OneTimeUrl
from storage.organizations import Organization
from storage.projects import Project
from storage.rate_windows import RateWindow
from storage.replays import Replay
from storage.samples import Sample
from storage.sessions import UserSession
from storage.teams import Team, TeamMember
from storage.users import User
from storage.work import Work

__all__ = [
    "ApiKey",
    "AuditEntry",
    "Cell",
    "Change",
    "Domain",
    "Event",
    "EventCount",
    "Instance",
    "Membership",
    "Network",
    "OneTimeUrl",
    "Organization",
    "Project",
    "RateWindow",
    "Record",
    "Replay",
    "Sample",
    "Team",
    "TeamMember",
    "User",
    "UserSession",
    "Work",
]
