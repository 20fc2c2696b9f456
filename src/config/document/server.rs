//! `[server]`, `[log]`, `[admin]`, `[response]` and `[defaults]`.

use super::super::outline::{ShownValue, show, show_list, show_time};
use super::super::value::{ErrorText, address, error_text, error_word, network, percent};
use super::super::vocabulary::{Emptiness, ValueShape};
use super::Items;
use super::fields::Zero;
use super::form::{
    any, bytes_in_a_second, count, filled_texts, number, text, text_as, texts, time, word,
};
use super::table::table;
use super::words::{Words as _, words};
use crate::key::client_ip::Field;
use crate::snapshot::FieldStyle;
use crate::snapshot::errors::ErrorBody;
use crate::telemetry::{AccessFormat, Level};
use ipnet::IpNet;
use std::net::SocketAddr;
use std::time::Duration;

/// The report on a list without addresses.
const NO_ADDRESS: Emptiness = Emptiness {
    message: "names no address",
    label: "at least one address",
    help: "leave it out for `\":8080\"`",
};

table! {
    /// Where requests come in, and how long a connection may dawdle.
    ServerTable = SERVER, "server", "the server", later &["tls", "include"];

    /// Addresses to listen on, for HTTP/1.1 and cleartext HTTP/2 alike; `:port` is every IPv4 address, port 0 any free
    /// port.
    listen: Items<SocketAddr> = filled_texts(address, NO_ADDRESS), Value("\":8080\""), "[\"127.0.0.1:8080\", \"[::1]:8080\"]",
        Restart(|boot| show_list(&boot.listen.addresses));

    /// Networks of proxies in front of this one, whose `Forwarded` and `X-Forwarded-For` are believed, walked from the
    /// right.
    trust: Items<IpNet> = texts(network), Words("no peer"), "[\"10.0.0.0/8\"]", Gateway(|file| show_list(&file.trust));

    /// The field in which those proxies name the client; the other is not read then, nor with `forwarded` any
    /// `X-Forwarded-*`. Without it both are, and where they name different clients `X-Forwarded-For` is believed, which
    /// also says by `X-Forwarded-Proto` and `-Host` what `Forwarded` else would: behind a proxy that writes `Forwarded`
    /// alone, and lets the other pass, it must be named.
    trust_field: Field = word(), Words("either"), "\"forwarded\"",
        Gateway(|file| show(file.trust_field.map_or("either", Field::name)));

    /// Threads that serve requests; 0 is one for each core.
    workers: u32 = number(0, 1024), Value("0"), "4", Restart(|boot| show(boot.workers));

    /// Longest that requests under way may take to finish when the gateway is to stop.
    drain: Duration = time(Zero::Allowed), Value("\"30s\""), "\"10s\"", Restart(|boot| show_time(boot.drain));

    /// Longest a fresh connection may take to show which protocol it speaks.
    first_byte: Duration = time(Zero::Refused), Value("\"10s\""), "\"5s\"",
        Restart(|boot| show_time(boot.listen.first_byte));

    /// Longest a request's head may take, from its first byte to its last, however they come, and never longer than
    /// `idle`: then 408 over HTTP/1.1, and the connection ends.
    head: Duration = time(Zero::Refused), Value("\"10s\""), "\"5s\"", Restart(|boot| show_time(boot.listen.head));

    /// Longest a connection may say nothing: between requests, between two chunks of a body in either direction.
    idle: Duration = time(Zero::Refused), Value("\"60s\""), "\"2min\"", Restart(|boot| show_time(boot.listen.idle));

    /// Least that a client must send of a body, and take of an answer, over `idle`; over HTTP/2 of each stream. Only
    /// time counts in which it alone is waited for, never a server that writes or reads slowly, nor a held request.
    /// WebSockets and gRPC have `idle` alone; 0 is off.
    min_rate: u64 = bytes_in_a_second(), Value("\"256B/s\""), "\"1KiB/s\"",
        Restart(|boot| show(format!("{}B/s", boot.listen.min_rate)));

    /// Connections held at once. Beyond it a new one takes the place of the one that has been idle longest between two
    /// requests, else of one that has sent nothing, else of one that has sent half a head; where all have a request
    /// under way it is closed. Never more than half of the open files that the system allows (`ulimit -Hn`; what it
    /// allows at least is raised to that), less 64, so that as many upstream connections fit beside them.
    max_connections: u32 = count(), Value("100000"), "20000", Restart(|boot| show(boot.listen.max_connections));

    /// Connections of one client, which is an address, in IPv6 a /64. Beyond it a new one takes the place of the
    /// client's own that has been idle longest between two requests; where none is, it is closed. Written, it holds
    /// always. Peers in `trust` stand for many clients, and it does not hold for them.
    max_connections_per_client: u32 = count(), Words("a tenth of `max_connections`, while more than half of them are taken"), "100",
        Restart(|boot| show(shown_share(boot.listen.max_connections_per_client)));

    /// Requests held back by leaky buckets at once, in the whole gateway; beyond it the answer is 503.
    max_held: u32 = count(), Value("10000"), "2000", Gateway(|file| show(file.holds.total));

    /// Requests held back at once for one client's address, of IPv6 for all of a /64; beyond it the answer is 503.
    max_held_per_client: u32 = count(), Value("1000"), "100", Gateway(|file| show(file.holds.per_client));
}

table! {
    /// What is written about requests (standard output) and about the gateway (standard error).
    Log = LOG, "log", "the log";

    /// Form of the line written for each request.
    access: AccessFormat = word(), Words("`\"json\"`; `\"short\"` on a terminal"), "\"json\"",
        Restart(|boot| show(boot.log.access.word()));

    /// Least severe message about the gateway itself.
    level: Level = word(), Value("\"info\""), "\"warn\"", Restart(|boot| show(boot.log.level.word()));
}

table! {
    /// Metrics and health on an address of their own. Without this table there is none.
    Admin = ADMIN, "admin", "the admin listener", later &["token"];

    /// Its address, apart from those of `[server]`; every client that reaches it can read all that it shows.
    listen: SocketAddr = text(address), Value("\"127.0.0.1:9090\""), "\"127.0.0.1:9090\"",
        Restart(|boot| show(boot.admin.map_or("off".to_owned(), |admin| admin.listen.to_string())));
}

table! {
    /// What responses say about limits, and what errors look like.
    ResponseTable = RESPONSE, "response", "the response";

    /// Which fields: `RateLimit` and `RateLimit-Policy` (standard), `X-RateLimit-*` (legacy: of the limit that a
    /// refusal names, else of the one with the least left of what it holds: of a bucket's `burst`, a queue's `queue` +
    /// `burst`, else of the rate's number), both or none; `Retry-After` stays on every refusal. Of a list of rates each
    /// is a policy of its own, `NAME:TIME` (`per-key:min`), as in `violated-policies`; a limit on what is in flight has
    /// `qu="concurrent-requests"` and no times, and is in none of the older fields. What an upstream says of its own
    /// limits stays: its items of the lists behind ours, and its `X-RateLimit-*` where it has less left.
    headers: FieldStyle = word(), Value("\"both\""), "\"standard\"", Gateway(|file| show(file.fields.word()));

    /// What errors of the gateway's own look like: `problem+json` (RFC 9457), `text`, `html`, or `accept`, which is the
    /// one of these that the request's `Accept` likes best. `file:PATH` (`.html`, `.json`, `.txt` or `.xml`, at most 64
    /// KiB) is sent to clients that a limit refuses, with `{status}`, `{limit}`, `{retry_after}` and `{request_id}`
    /// filled in; other errors stay problem documents.
    body: ErrorText = text_as(ValueShape::ErrorBody, error_text), Value("\"problem+json\""), "\"file:deny.json\"",
        Gateway(|file| error_body(Some(&file.errors.everywhere)));

    /// By how much longer a refusal may say to wait, each time another share of this: clients that were refused
    /// together do not come back together.
    jitter: u8 = text(percent), Value("\"0%\""), "\"10%\"", Gateway(|file| show(format!("{}%", file.jitter)));
}

table! {
    /// What holds for every request, whichever route it takes.
    Defaults = DEFAULTS, "defaults", "the defaults";

    /// Names of the limits that every request is held to, also where no route matches; they follow the route's own in
    /// its one decision. A route drops one with `"!NAME"` in its `limits`.
    limits: Items<String> = texts(any), Words("none"), "[\"per-ip\"]", Gateway(|file| show_list(&file.defaults));
}

words! { Field: XForwardedFor "x-forwarded-for", Forwarded "forwarded" }
words! { AccessFormat: Json "json", Short "short", Combined "combined", Off "off" }
words! { Level: Error "error", Warn "warn", Info "info", Debug "debug", Trace "trace" }
words! { FieldStyle: Both "both", Standard "standard", Legacy "legacy", None "none" }

fn shown_share(most: Option<usize>) -> String {
    most.map_or("a tenth of max_connections".to_owned(), |most| {
        most.to_string()
    })
}

/// The form of error bodies; what a template says is compared and not shown.
pub(super) fn error_body(body: Option<&ErrorBody>) -> Option<ShownValue> {
    let Some(body) = body else {
        return show("as in [response]");
    };
    let whole = matches!(body, ErrorBody::File(_)).then(|| format!("{body:?}"));
    Some(ShownValue {
        text: error_word(body).unwrap_or("a file").to_owned(),
        whole,
    })
}
