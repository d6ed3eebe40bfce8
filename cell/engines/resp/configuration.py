"""What a server is told: its configuration file, its users and what each of them may do."""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cell.engines.driver import Login
from cell.runtime.engine_folders import EngineFolders
from cell.specification import Size
from gateway import logins

SOCKET = "engine.sock"
CONFIGURATION = "engine.conf"
USERS = "users.acl"
USERNAME = "app"
ADMINISTRATOR = "menagerie"
LOG_DIRECTORY = "appendonlydir"
LOG = "appendonly.aof"
DUMP = "dump.rdb"
# Beside a log that is not a server's of ours, and one that goes on elsewhere.
UNTRUSTED, CONTINUED = f"{LOG}.untrusted", f"{LOG}.continued"
# Nothing listens at port 0.
NOBODY = "127.0.0.1 0"
TIMESTAMPS = ("aof-timestamp-enabled", "yes")

# The rest is for the copy-on-write of a rewrite, scripts, fragmentation and one command's answer.
MEMORY_SHARE = 0.6
CLIENTS_SHARE = "30%"
VALUE_SHARE = 0.25
# After it, all others are told so, and the cell stops the script.
SCRIPT_MS = 5_000
VALUE_BYTES_MAX = 512 * 2**20
CLIENTS_RESERVED = 16

# What the driver does as administrator, and no more: it cannot read a key.
ADMINISTRATOR_RULES = (
    "resetchannels",
    "-@all",
    *("+ping", "+info", "+bgsave", "+config|set", "+script|kill", "+function|kill"),
    *("+multi", "+exec"),
    *("+bgrewriteaof", "+function|stats", "+function|list", "+function|delete", "+function|flush"),
    *("+acl|setuser", "+acl|list", "+acl|users", "+acl|deluser", "+client|kill"),
    *("+client|pause", "+client|unpause"),
)
# Nobody can log in as it, but it is whose rights Redis 7.0 holds the transactions of its own log
# against when it starts; without them it would drop what scripts and MULTI wrote.
DEFAULT_RULES = ("reset", "off", "~*", "&*", "+@all")
# Keys and channels are all the tenant's own. What is taken away reaches files, other servers,
# the configuration or the users; what is given back looks or acts within the instance only.
TENANT_RULES = (
    "~*",
    "&*",
    "+@all",
    *("-@dangerous", "-@admin"),
    *("+info", "+keys", "+sort", "+sort_ro", "+flushdb", "+flushall", "+swapdb", "+restore"),
    # Not `client|kill`: in a loop, it would keep the administrator from ending a credential.
    *("+client|list", "+client|unblock", "+role", "+lastsave"),
    # A library that is restored may run for as long as a script: at each start, and before that.
    *("+slowlog", "+latency", "-script|debug", "-function|restore"),
)
# Beyond these, where the storage is full. What would write a log without removing anything, as
# EXPIRE, is not among them.
ONLY_FREEING = (
    "-@write",
    *("+del", "+unlink", "+getdel", "+flushdb", "+flushall", "+hdel", "+srem", "+spop"),
    *("+lpop", "+rpop", "+lmpop", "+blpop", "+brpop", "+blmpop", "+ltrim", "+lrem"),
    *("+zrem", "+zremrangebyrank", "+zremrangebyscore", "+zremrangebylex", "+zpopmin", "+zpopmax"),
    *("+zmpop", "+bzpopmin", "+bzpopmax", "+bzmpop", "+xdel", "+xtrim", "+xack"),
    *("+xgroup|destroy", "+xgroup|delconsumer", "+function|delete", "+function|flush"),
)


@dataclass(frozen=True)
class RespLimits:
    """What a size means to a server."""

    memory_bytes: int
    value_bytes: int
    clients: int

    @classmethod
    def of(cls, size: Size) -> "RespLimits":
        memory_bytes = int(size.memory_bytes * MEMORY_SHARE)
        value_bytes = min(VALUE_BYTES_MAX, max(2**20, int(memory_bytes * VALUE_SHARE)))
        return cls(memory_bytes, value_bytes, size.connections_max + logins.MAX + CLIENTS_RESERVED)

    def settings(self) -> list[tuple[str, str]]:
        """Those that a running server takes, too."""
        return [
            ("maxmemory", str(self.memory_bytes)),
            ("proto-max-bulk-len", str(self.value_bytes)),
            ("client-query-buffer-limit", str(2 * self.value_bytes)),
            ("maxclients", str(self.clients)),
        ]


def configuration(
    view: EngineFolders, limits: RespLimits, marks: Collection[str] = frozenset()
) -> str:
    """The file's content. Data that is UNTRUSTED is checked all through while it is read.

    Of data that is CONTINUED elsewhere nothing expires here, as in a replica.
    """
    settings = [
        ("port", "0"),
        ("unixsocket", _quoted(view.run / SOCKET)),
        ("unixsocketperm", "700"),
        ("dir", _quoted(view.data)),
        ("aclfile", _quoted(view.configuration / USERS)),
        ("daemonize", "no"),
        # The standard output is the log.
        ("logfile", '""'),
        # A crash would write the command there that ran.
        ("crash-log-enabled", "no"),
        ("set-proc-title", "no"),
        ("always-show-logo", "no"),
        # Each write is in the system's cache before it is answered, which `everysec` puts off
        # while a sync runs; the cell brings it to disk every second. See Flushing.
        ("appendonly", "yes"),
        ("appendfsync", "no"),
        ("appenddirname", LOG_DIRECTORY),
        ("appendfilename", LOG),
        ("aof-use-rdb-preamble", "yes"),
        # Of a killed server's log, the end may be missing; not so of what is put together.
        ("aof-load-truncated", "no" if CONTINUED in marks else "yes"),
        # The second before the first command in it: what a recovery to a moment goes by.
        TIMESTAMPS,
        # Until the cell has seen that it fits: a start would begin one at once. See Writers.
        ("auto-aof-rewrite-percentage", "0"),
        ("save", '""'),
        ("dbfilename", DUMP),
        # A database does not forget what it was given.
        ("maxmemory-policy", "noeviction"),
        ("maxmemory-clients", CLIENTS_SHARE),
        ("sanitize-dump-payload", "yes" if UNTRUSTED in marks else "clients"),
        ("busy-reply-threshold", str(SCRIPT_MS)),
        # Not even the administrator's password opens these.
        ("enable-protected-configs", "no"),
        ("enable-debug-command", "no"),
        ("enable-module-command", "no"),
        *limits.settings(),
        *([("replicaof", NOBODY)] if CONTINUED in marks else []),
    ]
    return "".join(f"{name} {value}\n" for name, value in settings)


def users(tenant: Iterable[str], administrator: Iterable[str]) -> str:
    """The content of the users' file, from what `rules_of` gives for each."""
    lines = [
        ["default", *DEFAULT_RULES],
        [USERNAME, *tenant],
        [ADMINISTRATOR, *administrator],
    ]
    return "".join(f"user {' '.join(words)}\n" for words in lines)


def rules_of(logins: Iterable[Login], rules: Iterable[str]) -> list[str]:
    """A user anew: on with these passwords only, of which no more than hashes are told."""
    # Passwords have 256 random bits, so their plain hash tells nothing.
    hashes = [f"#{hashlib.sha256(login.password.encode()).hexdigest()}" for login in logins]
    return ["reset", "on", *hashes, *rules]


def _quoted(value: object) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
