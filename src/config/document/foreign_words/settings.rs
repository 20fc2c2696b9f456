//! Words of others for tables, and for keys of clients, bodies and upstreams.

use super::TablePlace::{In, Key, Top};
use super::{ForeignSetting, Offer, TablePlace};

pub(super) const LIMITS: TablePlace = In("limits");
pub(super) const ROUTES: TablePlace = In("routes");
pub(super) const UPSTREAMS: TablePlace = In("upstreams");

pub(super) const fn row(
    words: &'static [&'static str],
    places: &'static [TablePlace],
    about: &'static str,
    offers: &'static [Offer],
) -> ForeignSetting {
    ForeignSetting {
        words,
        places,
        about,
        offers,
    }
}

pub(super) const fn offer(table: &'static str, lines: &'static [&'static str]) -> Offer {
    Offer { table, lines }
}

/// The words, each with its places, what is different here, and what to write. A row for a table comes before a row for
/// any table.
pub(super) static TABLES_AND_UPSTREAMS: &[ForeignSetting] = &[
    // Tables.
    row(
        &[
            "services", "service", "backends", "clusters", "cluster", "pools",
        ],
        &[Top],
        "",
        &[offer(
            "upstreams",
            &["servers = [\"http://10.0.0.5:3000\"]"],
        )],
    ),
    row(
        &["http", "stream", "events", "global", "static", "dynamic"],
        &[Top],
        "there is no such level: `[server]`, `[routes.NAME]`, `[upstreams.NAME]` and `[limits.NAME]` are at the top of the file",
        &[],
    ),
    row(
        &[
            "frontends",
            "listeners",
            "entrypoints",
            "virtualhosts",
            "vhosts",
            "sites",
        ],
        &[Top],
        "addresses belong to the server, and hosts are conditions of routes",
        &[
            offer("server", &["listen = [\":8080\"]"]),
            offer("routes", &["host = [\"shop.example.com\"]"]),
        ],
    ),
    row(
        &["middlewares", "plugins", "filters", "policies", "chains"],
        &[Top, Key],
        "a route names its limits, and all other steps are keys of the route",
        &[
            offer("limits", &["by = \"ip\"", "rate = \"10/s\""]),
            offer("routes", &["limits = [\"per-ip\"]"]),
        ],
    ),
    row(
        &[
            "rate_limits",
            "ratelimit",
            "limit_req",
            "limit_req_zone",
            "stick_table",
        ],
        &[Top, Key],
        "a limit is a table that routes name",
        &[
            offer("limits", &["by = \"ip\"", "rate = \"10/s\""]),
            offer("routes", &["limits = [\"per-ip\"]"]),
        ],
    ),
    row(
        &["redis", "storage", "datastore", "cache_store"],
        &[Top, In("store")],
        "",
        &[offer("store", &["url = \"redis://127.0.0.1:6379\""])],
    ),
    row(
        &[
            "consumers",
            "customers",
            "users",
            "credentials",
            "clients",
            "apikeys",
        ],
        &[Top],
        "clients are customers of a group, `NAME CREDENTIAL` on each line of a file",
        &[offer(
            "groups",
            &["by = \"header:x-api-key\"", "customers = \"pro-keys.txt\""],
        )],
    ),
    // Clients.
    row(
        &[
            "basic_auth",
            "basicauth",
            "auth_basic",
            "auth_basic_user_file",
            "htpasswd",
        ],
        &[Top, Key],
        "a group has digests of users with made passwords (`printf %s 'anna:PASSWORD' | sha256sum`), and a limit refuses all others with 401",
        &[
            offer("groups", &["by = \"basic\"", "customers = \"staff.txt\""]),
            offer("limits", &["by = \"customer\"", "missing = \"refuse\""]),
        ],
    ),
    row(
        &["key_auth", "keyauth", "api_key_auth"],
        &[Top, Key],
        "a group names the customers behind keys, and a limit refuses all others with 401",
        KEYS,
    ),
    row(
        &["jwt_auth", "oidc", "openid_connect"],
        &[Top, Key],
        "a login of browsers needs a service in front; tokens are verified",
        &[
            offer(
                "jwt",
                &["keys = \"issuer.pem\"", "algorithms = [\"RS256\"]"],
            ),
            offer("limits", &["by = \"jwt:sub\"", "missing = \"refuse\""]),
        ],
    ),
    row(
        &[
            "auth",
            "forward_auth",
            "forwardAuth",
            "auth_request",
            "ext_authz",
            "extauth",
        ],
        &[Top, Key],
        "no other service is asked about a request; tokens and keys are verified",
        &[
            offer(
                "jwt",
                &["keys = \"issuer.pem\"", "algorithms = [\"RS256\"]"],
            ),
            offer("limits", &["by = \"jwt:sub\"", "missing = \"refuse\""]),
        ],
    ),
    row(
        &["whitelist", "skip", "bypass", "bypass_ips", "excluded"],
        &[LIMITS],
        "",
        &[offer("limits", &["exempt = { ip = [\"10.0.0.0/8\"] }"])],
    ),
    row(
        &[
            "acl",
            "ip_restriction",
            "ip_allow_list",
            "ipwhitelist",
            "whitelist",
            "blacklist",
            "allowlist",
            "denylist",
            "satisfy",
            "allow",
            "deny",
        ],
        &[Top, Key],
        "no list refuses clients; a route for members of a group may answer them",
        &[
            offer("groups", &["by = \"ip\"", "members = [\"192.0.2.0/24\"]"]),
            offer(
                "routes",
                &["groups = [\"gold\"]", "respond = { status = 403 }"],
            ),
        ],
    ),
    // Bodies.
    row(
        &[
            "client_max_body_size",
            "max_request_body",
            "maxRequestBodyBytes",
            "request_size_limiting",
            "body_size",
            "request_body",
            "max_body",
        ],
        &[Key],
        "bodies have no greatest size: `idle` and `min_rate` of `[server]` bound their time, and servers their size",
        &[],
    ),
    row(
        &[
            "proxy_request_buffering",
            "proxy_buffering",
            "buffering",
            "flush_interval",
        ],
        &[Key],
        "this needs no setting: bodies pass in both directions as they come",
        &[],
    ),
    row(
        &["gzip", "compress", "encode", "brotli"],
        &[Top, Key],
        "no body is changed: the server, or a proxy in front, may compress it",
        &[],
    ),
    row(
        &["mirror", "request_mirror_policies", "cache", "proxy_cache"],
        &[Key],
        "mirrors and caches belong in front or behind; a limit is tried out beside others",
        &[offer("limits", &["mode = \"shadow\""])],
    ),
    row(
        &["websocket", "websockets", "upgrade", "proxy_http_version"],
        &[ROUTES, UPSTREAMS],
        "WebSockets pass without a setting, and other upgrades do not pass",
        &[],
    ),
    row(
        &[
            "error_page",
            "errors",
            "error_pages",
            "custom_errors",
            "pages",
        ],
        &[Top, ROUTES, In("response")],
        "the gateway's errors have one form, and a limit's refusals may have a file",
        &[
            offer("response", &["body = \"html\""]),
            offer("limits", &["body = \"file:slow-down.html\""]),
        ],
    ),
    row(
        &[
            "cors",
            "cors_policy",
            "access_control_allow_origin",
            "accessControlAllowOriginList",
        ],
        &[Top, Key],
        "servers answer requests of other origins, and preflights are free; a route may set the field",
        &[offer(
            "routes",
            &[
                "response_headers = { set = { access-control-allow-origin = \"https://shop.example.com\" } }",
            ],
        )],
    ),
    // Upstreams.
    row(
        &["sticky", "sticky_session", "session_affinity", "ip_hash"],
        &[UPSTREAMS],
        "",
        &[offer("upstreams", &["balance = \"hash:cookie:session\""])],
    ),
    row(
        &["backup"],
        &[UPSTREAMS],
        "no server is spare: a server that fails gets no requests, and `weight = 0` gives a server none",
        &[offer("upstreams", &["health = \"/healthz\""])],
    ),
    row(
        &[
            "lb_policy",
            "lb_algorithm",
            "load_balancer",
            "loadbalancing",
            "leastconn",
            "least_conn",
            "least_request",
            "p2c",
        ],
        &[UPSTREAMS],
        "",
        &[offer("upstreams", &["balance = \"least-requests\""])],
    ),
    row(
        &["roundrobin", "round_robin", "wrr", "weighted"],
        &[UPSTREAMS],
        "servers have weights",
        &[offer(
            "upstreams",
            &["servers = [{ url = \"http://10.0.0.5:3000\", weight = 2 }]"],
        )],
    ),
    row(
        &["ketama", "maglev", "consistent_hash", "source", "chash"],
        &[UPSTREAMS],
        "",
        &[offer("upstreams", &["balance = \"hash:ip\""])],
    ),
    row(
        &[
            "health_check",
            "healthcheck",
            "healthchecks",
            "active_health_checks",
            "check",
        ],
        &[UPSTREAMS],
        "",
        &[offer("upstreams", &["health = \"/healthz\""])],
    ),
    row(
        &[
            "passive_health_checks",
            "outlier_detection",
            "max_fails",
            "fail_timeout",
            "circuit_breaker",
            "circuitbreaker",
        ],
        &[UPSTREAMS],
        "servers that fail are ejected without a setting; for other numbers",
        &[offer(
            "upstreams",
            &["eject = { after = 5, for = \"10s\" }"],
        )],
    ),
    row(
        &[
            "retries",
            "retry_policy",
            "num_retries",
            "proxy_next_upstream",
            "try_duration",
        ],
        &[ROUTES, UPSTREAMS],
        "safe requests are retried without a setting; for other numbers",
        &[offer("upstreams", &["retry = { attempts = 1 }"])],
    ),
    row(
        &[
            "max_conns",
            "maxconn",
            "max_connections_per_server",
            "inFlightReq",
        ],
        &[UPSTREAMS],
        "a server has a bound of its own, and clients have a limit",
        &[
            offer(
                "upstreams",
                &["servers = [{ url = \"http://10.0.0.5:3000\", max_requests = 100 }]"],
            ),
            offer("limits", &["algorithm = \"concurrency\"", "max = 10"]),
        ],
    ),
    row(
        &["url", "uri", "endpoint"],
        &[UPSTREAMS],
        "",
        &[offer(
            "upstreams",
            &["servers = [\"http://10.0.0.5:3000\"]"],
        )],
    ),
];

const KEYS: &[Offer] = &[
    offer(
        "groups",
        &["by = \"header:x-api-key\"", "customers = \"pro-keys.txt\""],
    ),
    offer("limits", &["by = \"customer\"", "missing = \"refuse\""]),
];
