//! Words of others for keys of routes, the server and limits.

use super::TablePlace::{In, Key, Top};
use super::settings::{LIMITS, ROUTES, UPSTREAMS, offer, row};
use super::{ForeignSetting, TablePlace};

const SERVER: TablePlace = In("server");

const OPEN_OR_CLOSED: &str =
    "with `open` requests pass while Redis is away, with `closed` they are answered 503";

pub(super) static ROUTES_AND_LIMITS: &[ForeignSetting] = &[
    // Routes.
    row(
        &[
            "proxy_pass",
            "reverse_proxy",
            "backend",
            "target",
            "targets",
            "to",
            "service",
            "cluster",
        ],
        &[ROUTES],
        "a route names its upstream, whose `servers` are addresses",
        &[offer("routes", &["upstream = \"orders\""])],
    ),
    row(
        &[
            "path_prefix",
            "prefix",
            "PathPrefix",
            "paths",
            "uris",
            "match",
            "rule",
        ],
        &[ROUTES],
        "",
        &[offer("routes", &["path = \"/api/{*rest}\""])],
    ),
    row(
        &["path_regex", "regex", "uri_regex", "HostRegexp"],
        &[ROUTES],
        "there are no regular expressions: a path has `{name}` for a segment and `{*rest}` for the rest, and several routes say more",
        &[offer("routes", &["path = \"/api/{id}/{*rest}\""])],
    ),
    row(
        &["strip_path", "stripPrefix", "handle_path", "prefix_rewrite"],
        &[ROUTES],
        "",
        &[offer("routes", &["strip_prefix = \"/api\""])],
    ),
    row(
        &["replacePath", "rewrite_target", "regex_rewrite"],
        &[ROUTES],
        "",
        &[offer("routes", &["rewrite = \"/v2/{*rest}\""])],
    ),
    row(
        &[
            "add_header",
            "set_header",
            "header",
            "headers_more",
            "response_header",
            "customResponseHeaders",
        ],
        &[ROUTES],
        "",
        &[offer(
            "routes",
            &["response_headers = { set = { x-source = \"tollgate\" } }"],
        )],
    ),
    row(
        &[
            "proxy_set_header",
            "header_up",
            "request_transformer",
            "customRequestHeaders",
        ],
        &[ROUTES],
        "",
        &[offer(
            "routes",
            &["request_headers = { set = { x-source = \"tollgate\" } }"],
        )],
    ),
    row(
        &[
            "preserve_host",
            "passHostHeader",
            "host_rewrite",
            "pass_host",
            "upstream_host",
        ],
        &[ROUTES, UPSTREAMS],
        "servers are asked for the client's host; for their own",
        &[offer("upstreams", &["host = \"upstream\""])],
    ),
    row(
        &["priority", "order", "weight"],
        &[ROUTES],
        "no order is needed: the most specific route wins",
        &[],
    ),
    row(
        &["hosts", "domain", "domains", "server_name"],
        &[ROUTES],
        "",
        &[offer("routes", &["host = [\"shop.example.com\"]"])],
    ),
    row(
        &["ssl", "https", "certResolver", "ssl_certificate"],
        &[ROUTES, SERVER],
        "",
        &[
            offer("server", &["listen = { address = \":8443\", tls = true }"]),
            offer("tls", &["cert = \"api.pem\"", "key = \"api.key\""]),
        ],
    ),
    row(
        &["redirect_scheme", "https_redirect", "force_ssl"],
        &[ROUTES, SERVER],
        "",
        &[
            offer(
                "server",
                &[
                    "listen = [{ address = \":8080\", redirect = \"https\" }, { address = \":8443\", tls = true }]",
                ],
            ),
            offer("tls", &["cert = \"api.pem\"", "key = \"api.key\""]),
        ],
    ),
    row(
        &["hsts"],
        &[ROUTES],
        "",
        &[offer(
            "routes",
            &["response_headers = { set = { strict-transport-security = \"max-age=31536000\" } }"],
        )],
    ),
    row(
        &[
            "proxy_read_timeout",
            "request_timeout",
            "respondingTimeouts",
            "timeout_server",
        ],
        &[ROUTES, UPSTREAMS],
        "",
        &[offer("routes", &["timeout = \"5s\""])],
    ),
    // The server.
    row(
        &[
            "trusted_proxies",
            "trusted_ips",
            "set_real_ip_from",
            "forwardedHeaders",
            "xff_num_trusted_hops",
            "ipStrategy",
            "depth",
        ],
        &[SERVER, LIMITS],
        "proxies are named by networks, not counted",
        &[offer("server", &["trust = [\"10.0.0.0/8\"]"])],
    ),
    row(
        &["real_ip_header", "remote_ip_header", "client_ip_header"],
        &[SERVER],
        "",
        &[offer(
            "server",
            &["trust = [\"10.0.0.0/8\"]", "trust_field = \"x-real-ip\""],
        )],
    ),
    row(
        &[
            "client_body_timeout",
            "read_timeout",
            "write_timeout",
            "idle_timeout",
            "keepalive_timeout",
        ],
        &[SERVER],
        "`idle` and `min_rate` bound silence and slowness inside a request, `keep_alive` the time between two",
        &[offer("server", &["idle = \"60s\"", "keep_alive = \"75s\""])],
    ),
    // Limits.
    row(
        &[
            "key",
            "limit_by",
            "key_type",
            "descriptors",
            "descriptor",
            "sourceCriterion",
        ],
        &[LIMITS],
        "",
        &[offer("limits", &["by = \"ip\""])],
    ),
    row(
        &[
            "average",
            "requests_per_unit",
            "replenishRate",
            "limit",
            "count",
            "events",
            "unit",
            "period",
            "window",
            "fill_interval",
            "tokens_per_fill",
            "time_window",
        ],
        &[LIMITS],
        "number and time are one text",
        &[offer("limits", &["rate = \"100/min\""])],
    ),
    row(
        &["second", "minute", "hour", "day", "month"],
        &[LIMITS],
        "several rates are a list",
        &[offer("limits", &["rate = [\"50/min\", \"1000/h\"]"])],
    ),
    row(
        &["burst_size", "burstCapacity", "max_tokens", "bucket_size"],
        &[LIMITS],
        "the size of the bucket, the first request included; nginx's `burst` is one less",
        &[offer("limits", &["burst = 20"])],
    ),
    row(
        &["nodelay", "delay"],
        &[LIMITS],
        "a burst passes at once; for requests that wait their turn",
        &[offer("limits", &["algorithm = \"leaky-bucket\""])],
    ),
    row(
        &[
            "rejected_code",
            "limit_req_status",
            "error_code",
            "status_code",
        ],
        &[LIMITS],
        "",
        &[offer("limits", &["status = 429"])],
    ),
    row(
        &["rejected_msg"],
        &[LIMITS],
        "",
        &[offer("limits", &["body = \"file:slow-down.html\""])],
    ),
    row(
        &[
            "fault_tolerant",
            "allow_degradation",
            "failure_mode_deny",
            "failure_mode_allow",
            "redis_fail_open",
        ],
        &[LIMITS],
        OPEN_OR_CLOSED,
        &[offer("limits", &["on_down = \"open\""])],
    ),
    row(
        &[
            "fault_tolerant",
            "allow_degradation",
            "failure_mode_deny",
            "failure_mode_allow",
            "redis_fail_open",
        ],
        &[Top, In("store")],
        OPEN_OR_CLOSED,
        &[offer("store", &["on_down = \"open\""])],
    ),
    row(
        &["shadow_mode", "dry_run", "limit_req_dry_run", "log_only"],
        &[LIMITS],
        "",
        &[offer("limits", &["mode = \"shadow\""])],
    ),
    row(
        &["hits_addend", "requestedTokens", "weight"],
        &[LIMITS],
        "",
        &[offer("limits", &["cost = 5"])],
    ),
    row(
        &["skip_successful_requests", "response_codes", "status_codes"],
        &[LIMITS],
        "the status of the answer may decide the cost, and `refund = [\"2xx\"]` gives charges of successful requests back",
        &[offer(
            "limits",
            &["cost = { status = { \"401\" = 1, else = 0 } }"],
        )],
    ),
    // The rest.
    row(
        &["access_log", "log_format", "error_log"],
        &[Top, Key],
        "lines about requests are on standard output, messages on standard error",
        &[offer("log", &["access = \"json\""])],
    ),
    row(
        &["import", "snippet"],
        &[Top, Key],
        "",
        &[offer("", &["include = [\"routes.d/*.toml\"]"])],
    ),
];
