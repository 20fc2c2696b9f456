"""What is compared: the cases, who takes part in each with which limit, and the ratios that are promised."""

from dataclasses import dataclass, field

CASES = ("plain", "one connection", "memory", "redis", "redis keys", "refusal")
PROXIES = ("nginx", "haproxy", "envoy", "tollgate")


@dataclass(frozen=True)
class Contestant:
    """One proxy in one case. Settings fill the placeholders of its template."""

    case: str
    name: str
    proxy: str
    settings: dict = field(default_factory=dict)
    redis: bool = False
    batch: int = 1  # the most decisions that may share one script call
    connections: int = 64
    keys: int = 0  # with a number, each request names another of so many clients

    @property
    def refuses(self):
        return self.case == "refusal"


@dataclass(frozen=True)
class Ratio:
    """CPU per request of `of` over that of `to`, proxy and Redis together, and what it may be at most."""

    case: str
    of: str
    to: str
    most: float | None = None
    script_calls: float | None = None  # how many script calls per request `of` may make at most
    latency: float | None = None  # what the ratio of the median durations may be at most


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
    access_by_lua_block { require("redis_limit").decide(@REDIS@, "@SCRIPT_SHA@", @KEY@, 1, 1000000) }"""

# What Tollgate adds to each request and answer: forwarding fields and an id.
NGINX_FIELDS = """proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
            proxy_set_header Forwarded "for=$remote_addr;host=$host;proto=$scheme";
            proxy_set_header X-Request-Id $request_id;
            add_header X-Request-Id $request_id;"""

HAPROXY_HUGE = """stick-table type ip size 100k expire 30s store http_req_rate(1s)
    http-request track-sc0 src
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000 }"""

TOLLGATE_STORE = """[store]
url = "redis://127.0.0.1:@REDIS@/0"
"""


def tollgate(rate, keys, store="", lease="off"):
    """Tollgate's settings: one token bucket of this rate by each of the keys."""
    tables = "".join(
        f'[limits.{name(key)}]\nby = "{key}"\n{missing(key)}rate = "{rate}"\nlease = "{lease}"\n\n' for key in keys
    )
    names = ", ".join(f'"{name(key)}"' for key in keys)
    return {"STORE": store, "LIMIT": tables, "LIMIT_NAMES": names}


def name(key):
    return "per-" + key.rpartition(":")[2]


def missing(key):
    """What holds for a request without the field, which a limit by a field must say."""
    return 'missing = "skip"\n' if ":" in key else ""


def lua(key):
    return {"MODULES": NGINX_LUA_MODULES, "LIMIT": NGINX_LUA_HUGE, "KEY": key}


HUGE, TINY = "1000000/s", "1/min"
ONE, THREE = ("ip",), ("ip", "route", "everyone")
CLIENT, CLIENT_AND_TWO = ("header:x-api-key",), ("header:x-api-key", "ip", "route")
MANY = 100_000  # clients
DECISIONS_PER_CALL = 64  # what Tollgate sends to Redis together at most
REQUESTS_PER_LEASE = 100_000  # far more than one call brings; all load is of one client, whose key is leased


def redis(case, who, keys, lease="off", batch=DECISIONS_PER_CALL, clients=0):
    """Tollgate with the limits of these keys in Redis."""
    settings = tollgate(HUGE, keys, TOLLGATE_STORE, lease)
    return Contestant(case, who, "tollgate", settings, redis=True, batch=batch, keys=clients)


CONTESTANTS = (
    Contestant("plain", "nginx", "nginx"),
    Contestant("plain", "nginx, our fields", "nginx", {"FIELDS": NGINX_FIELDS}),
    Contestant("plain", "haproxy", "haproxy"),
    Contestant("plain", "envoy", "envoy"),
    Contestant("plain", "tollgate", "tollgate", tollgate(HUGE, ())),
    Contestant("one connection", "nginx", "nginx", connections=1),
    Contestant("one connection", "tollgate", "tollgate", tollgate(HUGE, ()), connections=1),
    Contestant("memory", "nginx", "nginx", {"LIMIT": NGINX_HUGE}),
    Contestant("memory", "haproxy", "haproxy", {"LIMIT": HAPROXY_HUGE}),
    Contestant("memory", "tollgate", "tollgate", tollgate(HUGE, ONE)),
    Contestant("memory", "tollgate, 3 limits", "tollgate", tollgate(HUGE, THREE)),
    Contestant("redis", "nginx + lua", "nginx", lua("ngx.var.remote_addr"), redis=True),
    redis("redis", "tollgate", ONE),
    redis("redis", "tollgate, leases", ONE, "auto", REQUESTS_PER_LEASE),
    redis("redis", "tollgate, 3 limits", THREE),
    redis("redis", "tollgate, 3 leased", THREE, "auto", REQUESTS_PER_LEASE),
    Contestant("redis keys", "nginx + lua", "nginx", lua("ngx.var.http_x_api_key"), redis=True, keys=MANY),
    redis("redis keys", "tollgate", CLIENT, clients=MANY),
    redis("redis keys", "tollgate, 3 limits", CLIENT_AND_TWO, clients=MANY),
    Contestant("refusal", "nginx", "nginx", {"LIMIT": NGINX_TINY}),
    Contestant("refusal", "tollgate", "tollgate", tollgate(TINY, ONE)),
    Contestant("refusal", "tollgate, redis", "tollgate", tollgate(TINY, ONE, TOLLGATE_STORE), redis=True),
)

RATIOS = (
    Ratio("plain", "tollgate", "nginx", 1.0),
    Ratio("plain", "tollgate", "nginx, our fields", 0.75),
    Ratio("plain", "tollgate", "haproxy", 0.9),
    Ratio("plain", "tollgate", "envoy", 0.3),
    Ratio("one connection", "tollgate", "nginx", 0.85, latency=0.85),
    Ratio("memory", "tollgate", "nginx"),
    Ratio("memory", "tollgate", "haproxy"),
    Ratio("memory", "tollgate, 3 limits", "haproxy", 1.0),
    Ratio("redis", "tollgate", "nginx + lua", 0.3),
    # Beside it, not instead of it: with one busy key nearly every request is decided by permits in hand.
    Ratio("redis", "tollgate, leases", "nginx + lua"),
    Ratio("redis", "tollgate, 3 limits", "nginx + lua", 0.4),
    Ratio("redis", "tollgate, 3 leased", "nginx + lua"),
    Ratio("redis keys", "tollgate", "nginx + lua", 0.4),
    Ratio("redis keys", "tollgate, 3 limits", "nginx + lua", 0.5),
    Ratio("refusal", "tollgate", "nginx", 0.95),
    # A known refusal costs Redis nothing; what a minute's one question and its renewals leave rounds to that.
    Ratio("refusal", "tollgate, redis", "nginx", 0.95, script_calls=0.001),
)
