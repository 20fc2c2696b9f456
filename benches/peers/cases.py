"""What is compared: the cases, who takes part in each with which limit, and the ratios that are promised."""

from dataclasses import dataclass, field

CASES = ("plain", "memory", "redis", "refusal")
PROXIES = ("nginx", "haproxy", "tollgate")


@dataclass(frozen=True)
class Contestant:
    """One proxy in one case. Settings fill the placeholders of its template."""

    case: str
    name: str
    proxy: str
    settings: dict = field(default_factory=dict)
    redis: bool = False
    batch: int = 1  # the most decisions that may share one script call

    @property
    def refuses(self):
        return self.case == "refusal"


@dataclass(frozen=True)
class Ratio:
    """CPU per request of `of` over that of `to`, proxy and Redis together, and what it may be at most."""

    case: str
    of: str
    to: str
    now: float | None = None
    final: float | None = None
    script_calls: float | None = None  # how many script calls per request `of` may make at most


# The limits. "Huge" never refuses what this load can send; "tiny" refuses all but the first request of a minute.

NGINX_HUGE = """limit_req_zone $binary_remote_addr zone=per-ip:1m rate=1000000r/s;
    limit_req zone=per-ip burst=1000000 nodelay;
    limit_req_status 429;"""

NGINX_TINY = """limit_req_zone $binary_remote_addr zone=per-ip:1m rate=1r/m;
    limit_req zone=per-ip;
    limit_req_status 429;"""

# One token in a microsecond, a bucket of a second: 1000000/s, as for the others.
NGINX_LUA_MODULES = """load_module @MODULE_DIR@/ndk_http_module.so;
load_module @MODULE_DIR@/ngx_http_lua_module.so;"""
NGINX_LUA_HUGE = """lua_package_path "@HERE@/?.lua;;";
    init_by_lua_block { require "redis_limit" }
    access_by_lua_block { require("redis_limit").decide(@REDIS@, "@SCRIPT_SHA@", 1, 1000000) }"""

HAPROXY_HUGE = """stick-table type ip size 100k expire 30s store http_req_rate(1s)
    http-request track-sc0 src
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000 }"""

TOLLGATE_STORE = """[store]
url = "redis://127.0.0.1:@REDIS@/0"
"""


def tollgate(rate, keys, store="", lease="off"):
    """Tollgate's settings: one token bucket of this rate by each of the keys."""
    tables = "".join(
        f'[limits.per-{key}]\nby = "{key}"\nrate = "{rate}"\nlease = "{lease}"\n\n' for key in keys
    )
    names = ", ".join(f'"per-{key}"' for key in keys)
    return {"STORE": store, "LIMIT": tables, "LIMIT_NAMES": names}


HUGE, TINY = "1000000/s", "1/min"
ONE, THREE = ("ip",), ("ip", "route", "everyone")
DECISIONS_PER_CALL = 64  # what Tollgate sends to Redis together at most
REQUESTS_PER_LEASE = 100_000  # far more than one call brings; all load is of one client, whose key is leased

CONTESTANTS = (
    Contestant("plain", "nginx", "nginx"),
    Contestant("plain", "haproxy", "haproxy"),
    Contestant("plain", "tollgate", "tollgate", tollgate(HUGE, ())),
    Contestant("memory", "nginx", "nginx", {"LIMIT": NGINX_HUGE}),
    Contestant("memory", "haproxy", "haproxy", {"LIMIT": HAPROXY_HUGE}),
    Contestant("memory", "tollgate", "tollgate", tollgate(HUGE, ONE)),
    Contestant("memory", "tollgate, 3 limits", "tollgate", tollgate(HUGE, THREE)),
    Contestant(
        "redis", "nginx + lua", "nginx", {"MODULES": NGINX_LUA_MODULES, "LIMIT": NGINX_LUA_HUGE}, redis=True
    ),
    Contestant(
        "redis", "tollgate", "tollgate", tollgate(HUGE, ONE, TOLLGATE_STORE), redis=True, batch=DECISIONS_PER_CALL
    ),
    Contestant(
        "redis",
        "tollgate, leases",
        "tollgate",
        tollgate(HUGE, ONE, TOLLGATE_STORE, "auto"),
        redis=True,
        batch=REQUESTS_PER_LEASE,
    ),
    Contestant(
        "redis",
        "tollgate, 3 limits",
        "tollgate",
        tollgate(HUGE, THREE, TOLLGATE_STORE),
        redis=True,
        batch=DECISIONS_PER_CALL,
    ),
    Contestant(
        "redis",
        "tollgate, 3 leased",
        "tollgate",
        tollgate(HUGE, THREE, TOLLGATE_STORE, "auto"),
        redis=True,
        batch=REQUESTS_PER_LEASE,
    ),
    Contestant("refusal", "nginx", "nginx", {"LIMIT": NGINX_TINY}),
    Contestant("refusal", "tollgate", "tollgate", tollgate(TINY, ONE)),
    Contestant("refusal", "tollgate, redis", "tollgate", tollgate(TINY, ONE, TOLLGATE_STORE), redis=True),
)

RATIOS = (
    Ratio("plain", "tollgate", "nginx", now=1.2, final=1.0),
    Ratio("plain", "tollgate", "haproxy", final=0.85),
    Ratio("memory", "tollgate", "nginx"),
    Ratio("memory", "tollgate", "haproxy"),
    Ratio("memory", "tollgate, 3 limits", "haproxy", final=1.0),
    Ratio("redis", "tollgate", "nginx + lua", now=0.4, final=0.3),
    # Beside it, not instead of it: with one busy key nearly every request is decided by permits in hand.
    Ratio("redis", "tollgate, leases", "nginx + lua"),
    Ratio("redis", "tollgate, 3 limits", "nginx + lua", final=0.4),
    Ratio("redis", "tollgate, 3 leased", "nginx + lua"),
    Ratio("refusal", "tollgate", "nginx", now=1.2, final=1.2),
    # A known refusal costs Redis nothing; what a minute's one question and its renewals leave rounds to that.
    Ratio("refusal", "tollgate, redis", "nginx", now=1.2, final=1.2, script_calls=0.001),
)
