//! Compiles a document without errors into a Boot and a Snapshot. The document has no errors: earlier steps have
//! reported every possible error.

use super::document::{self, ClientCert, CounterStore, Document, List, ServerTable, Words as _};
use super::input::At;
use super::presentation::{Boot, Outline, RouteOutline, UpstreamOutline};
use super::settings::groups::{Groups, customer_files};
use super::settings::identities::ReadIdentities;
use super::settings::identity_writers::IdentityWriters;
use super::settings::jwt::TokenRules;
use super::validate::{Validation, looks_at_method, redirected, template};
use super::value::literal_path;
use super::{Compiled, Diagnostic, Places, Report};
use crate::client::Nat64;
use crate::key::client_ip::Trust;
use crate::key::{
    Customers, FieldWriters, FieldsOfOthers, Group, IdentityFields, IdentityPiece, KeyCase,
    KeyPart, KeyTemplate, MissingKey, Sameness,
};
use crate::limit::Limit;
use crate::route::{PathBack, PathPattern, Rule, Segment};
use crate::snapshot::errors::ErrorFormats;
use crate::snapshot::{
    CustomerUse, HoldCaps, HostChange, LimitFields, Service, Snapshot, StaticReply,
};
use crate::store::Backend;
use crate::tls::Offers;
use crate::upstream::{self, ServerHost};
use http::{HeaderValue, header};
use ipnet::{IpNet, Ipv6Net};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The input of the compiler: a document without errors, and the values that were read and compiled for it.
pub(super) struct Compilation<'a> {
    pub(super) document: &'a Document,
    pub(super) checked: Validation,
    pub(super) boot: Boot,
    pub(super) errors: ErrorFormats,
    pub(super) groups: Groups,
    /// The networks of trusted peers.
    pub(super) trust: Vec<IpNet>,
    pub(super) jwt: Option<TokenRules>,
    pub(super) identities: ReadIdentities,
    pub(super) upstreams: Vec<Arc<upstream::Upstream>>,
    /// The report, which has no errors, without the warnings that the file ignores.
    pub(super) report: Report,
    pub(super) ignored: Vec<Diagnostic>,
}

impl Compilation<'_> {
    /// Puts everything together.
    pub(super) fn compile(self) -> Compiled {
        let (document, shared, checked) = (self.document, self.may_ask_redis(), self.checked);
        let by_name = by_name(&checked.limits);
        let (upstreams, groups) = (&self.upstreams, &self.groups.all);
        let writers = IdentityWriters::of(document, &self.report.source);
        let customers = self.groups.customers.clone();
        let known = IdentitySources { writers, groups };
        let mut services = services(document, &checked.rules, &by_name, upstreams, &known);
        let outline = Outline {
            boot: self.boot.clone(),
            routes: routes(document, checked.rules, &services),
            upstreams: upstream_outlines(document, &self.upstreams),
            identities: self.identities.outlines,
            jwt: self.jwt.as_ref().map(|jwt| jwt.outline.clone()),
            groups: self.groups.all,
            named_members: self.groups.named_members,
            limits: checked.limits.clone(),
            defaults: each(&document.defaults.limits),
            trust: self.trust,
            trust_field: document.server.trust_field.get().cloned(),
            nat64: document.server.nat64.values(),
            fields: LimitFields {
                style: document.response.headers(),
                reset: document.response.reset_form(),
            },
            errors: self.errors.clone(),
            jitter: document.response.jitter(),
            holds: holds(&document.server),
            keep_alive: document.server.kept_alive(),
            names_keep_alive: document.server.names_keep_alive(),
            written: Arc::clone(&document.written),
        };
        let routed = services.len();
        let (tokens, key_sets) = self.jwt.map(TokenRules::split).unzip();
        services.extend(unrouted(document, &by_name));
        let route_groups = route_groups(document, &outline.groups);
        for service in &mut services {
            service.customers.clone_from(&customers);
            service.customer_use = customer_use(service, document);
            service.asks_token |= looks_for_claims(service);
        }
        find_early_limits(&mut services, &route_groups);
        Compiled {
            boot: self.boot,
            snapshot: Snapshot {
                // The first; a reload counts on from it.
                generation: 1,
                other_methods: looks_at_method(document).is_none(),
                table: checked.table,
                unrouted: (services.len() > routed).then_some(routed),
                services,
                hash_keys: document.upstreams.iter().map(hash_key).collect(),
                route_groups,
                customers,
                upstreams: self.upstreams,
                trust: trust(&outline),
                tokens,
                fields: outline.fields,
                errors: self.errors,
                jitter: outline.jitter,
                holds: outline.holds,
                offers: Offers::default(),
            },
            identities: Arc::new(self.identities.identities),
            offers: self.identities.offers,
            orders: self.identities.orders.into(),
            key_sets: key_sets.unwrap_or_default(),
            warnings: self.report.diagnostics,
            ignored: self.ignored,
            customer_files: customer_files(document, &self.report.source),
            places: Arc::new(Places {
                source: Arc::clone(&self.report.source),
                at: places(document),
            }),
            source: self.report.source,
            files: self.report.files,
            shared,
            store_at: document.store.url.at().map(|at| at.span.clone()),
            ignoring: document.ignored.clone(),
            outline: Arc::new(outline),
        }
    }

    /// Can counters be in a Redis?
    fn may_ask_redis(&self) -> bool {
        if self.report.source.is_without_store() {
            self.document.counted != CounterStore::Memory
        } else {
            matches!(self.boot.store.source, Backend::Redis(_))
        }
    }
}

/// The peers whose statements about client addresses are trusted, and the translated networks.
fn trust(outline: &Outline) -> Trust {
    Trust::new(outline.trust.clone())
        .reading(outline.trust_field.as_ref())
        .translating(Nat64::of(outline.nat64.iter().map(Ipv6Net::addr)))
}

fn holds(server: &ServerTable) -> HoldCaps {
    HoldCaps {
        total: server.max_held() as usize,
        per_client: server.max_held_per_client() as usize,
    }
}

/// Limits by their names, each with all its rates.
type ByName<'a> = HashMap<&'a str, Vec<&'a Arc<Limit>>>;

fn by_name(limits: &[Arc<Limit>]) -> ByName<'_> {
    let mut by_name = ByName::new();
    for limit in limits {
        by_name.entry(&limit.name).or_default().push(limit);
    }
    by_name
}

fn services(
    document: &Document,
    rules: &[Rule],
    limits: &ByName<'_>,
    all_upstreams: &[Arc<upstream::Upstream>],
    known: &IdentitySources<'_>,
) -> Vec<Service> {
    let of_others = known.writers.shared();
    let upstreams = document.upstreams.iter();
    let positions: HashMap<&str, usize> = upstreams
        .map(|upstream| upstream.name.value.as_str())
        .zip(0..)
        .collect();
    let routes = document.routes.iter().zip(rules);
    routes
        .map(|(route, rule)| {
            let limits = chosen(document.limits_of(route), limits);
            let upstream = route.upstream.get().map(|name| {
                let position = positions.get(name.as_str());
                *position.expect("validate resolves every upstream name")
            });
            Service {
                name: route.name.value.as_str().into(),
                path: rule.path.clone(),
                asks_certificate: route.client_cert.get() == Some(&ClientCert::Required),
                upstream,
                host_change: host_change(route, upstream.map(|at| &*all_upstreams[at])),
                static_reply: static_reply(route),
                rewrite: template(route).ok().flatten(),
                prefix: stripped_prefix(route),
                request_fields: route.request_headers.get().cloned(),
                identity: identity(route, known, &of_others),
                response_fields: route.response_headers.get().cloned(),
                compares_bodies: compare_bodies(&limits),
                asks_token: ask_token(&limits),
                hides_limits: hide_one(&limits),
                limits,
                customers: None,
                customer_use: CustomerUse::Limits,
                early_limits: Box::default(),
                timeout: route.answer_timeout(),
                idle: route.idle.get().copied(),
            }
        })
        .collect()
}

/// The `Host` of requests to the servers of a route: the host that the route sets, else the upstream's host.
fn host_change(
    route: &document::Route,
    upstream: Option<&upstream::Upstream>,
) -> Option<HostChange> {
    let set = route.request_headers.get().and_then(|changes| {
        let mut set = changes.set.iter();
        set.find(|(name, _)| *name == header::HOST)
    });
    let host = match set {
        Some((_, host)) => ServerHost::Text(host.clone()),
        None => upstream?.host.clone()?,
    };
    Some(HostChange {
        host,
        path_back: path_back(route),
    })
}

/// The sources of the client facts that servers receive.
struct IdentitySources<'a> {
    writers: IdentityWriters<'a>,
    groups: &'a [Arc<Group>],
}

/// The fields that name clients to the servers of a route, with the groups whose members prove their membership. When
/// the route of an included file leads to an upstream of another file, clients cannot write the fields there by which
/// other files' routes name clients.
fn identity(
    route: &document::Route,
    known: &IdentitySources<'_>,
    of_others: &Arc<FieldWriters>,
) -> Option<Arc<IdentityFields>> {
    let home_file = known.writers.bounded_file(route);
    let of_others = home_file
        .filter(|_| !of_others.is_empty())
        .map(|home_file| FieldsOfOthers {
            writers: Arc::clone(of_others),
            home_file,
        });
    if route.forward_identity.is_absent() && of_others.is_none() {
        return None;
    }
    let may_prove = |group: &&Arc<Group>| group.by.is_proof() || group.named().is_some();
    let proven = known.groups.iter().filter(may_prove);
    Some(Arc::new(IdentityFields {
        fields: route.forward_identity.values(),
        of_others,
        groups: proven.map(Arc::clone).collect(),
    }))
}

/// The prefix of a route's paths that its servers do not see. The matched form of a path contains no byte that a field
/// cannot contain.
fn stripped_prefix(route: &document::Route) -> Option<HeaderValue> {
    let prefix = literal_path(route.strip_prefix.get()?);
    HeaderValue::try_from(prefix).ok()
}

/// The mapping from forwarded paths back to a route's paths, if the route only replaces a prefix.
fn path_back(route: &document::Route) -> Option<PathBack> {
    if let Some(prefix) = route.strip_prefix.get() {
        return PathBack::new("", &literal_path(prefix));
    }
    let rewrite = route.rewrite.get()?;
    let (rest, literal) = route.path.get()?.segments.split_last()?;
    let Segment::Rest(name) = rest else {
        return None;
    };
    let is_fixed = |one: &Segment| matches!(one, Segment::Literal(_) | Segment::Folded(_));
    let seen = rewrite.strip_suffix(&format!("/{{*{name}}}"))?;
    let is_one_way = seen.contains('{') || !literal.iter().all(is_fixed);
    let written = PathPattern {
        segments: literal.to_vec(),
    };
    (!is_one_way)
        .then(|| PathBack::new(seen, &literal_path(&written)))
        .flatten()
}

fn upstream_outlines(
    document: &Document,
    upstreams: &[Arc<upstream::Upstream>],
) -> Vec<UpstreamOutline> {
    let both = upstreams.iter().zip(&document.upstreams);
    both.map(|(upstream, written)| UpstreamOutline {
        upstream: Arc::clone(upstream),
        limits: each(&written.limits),
        hash: written.balance().key,
    })
    .collect()
}

fn each(names: &List<String>) -> Vec<Arc<str>> {
    let names = names.entries().iter();
    names.map(|at| at.value.as_str().into()).collect()
}

/// The place where each limit, upstream and route is defined.
fn places(document: &Document) -> HashMap<(&'static str, String), usize> {
    let identities = document.identities.iter().map(|one| ("tls", &one.name));
    let groups = document.groups.iter().map(|one| ("groups", &one.name));
    let limits = document.limits.iter().map(|one| ("limits", &one.name));
    let upstreams = document.upstreams.iter();
    let upstreams = upstreams.map(|one| ("upstreams", &one.name));
    let routes = document.routes.iter().map(|one| ("routes", &one.name));
    let all = identities
        .chain(groups)
        .chain(limits)
        .chain(upstreams)
        .chain(routes);
    all.map(|(table, name)| ((table, name.value.clone()), name.span.start))
        .collect()
}

/// The groups whose membership routes require.
fn route_groups(document: &Document, groups: &[Arc<Group>]) -> Vec<Arc<Group>> {
    let routes = document.routes.iter();
    let asked = routes.flat_map(|route| route.groups.entries());
    let asked: HashSet<&str> = asked.map(|at| at.value.as_str()).collect();
    let groups = groups.iter().filter(|group| asked.contains(&*group.name));
    groups.map(Arc::clone).collect()
}

/// The key by which the server of an upstream is chosen. A request may lack the key.
fn hash_key(written: &document::Upstream) -> Option<KeyTemplate> {
    let part = written.balance().key?;
    Some(KeyTemplate {
        parts: vec![part],
        missing: MissingKey::Skip,
        unknown: None,
        case: KeyCase::Sensitive,
    })
}

/// The limits with these names, each once, in their order. A limit with a list of rates gives one limit for each rate.
/// Shadow limits come last.
fn chosen<'a>(names: impl Iterator<Item = &'a At<String>>, limits: &ByName<'_>) -> Vec<Arc<Limit>> {
    let mut seen = HashSet::new();
    let names = names.map(|at| at.value.as_str());
    let named = names.filter(|name| seen.insert(*name)).flat_map(|name| {
        let named = limits.get(name);
        named.expect("validate resolves every limit name")
    });
    let mut chosen: Vec<Arc<Limit>> = named.map(|limit| Arc::clone(limit)).collect();
    chosen.sort_by_key(|limit| !limit.mode.decides());
    chosen
}

/// What looks for the customer of the route's requests beside its limits.
fn customer_use(service: &Service, document: &Document) -> CustomerUse {
    let fields = service.identity.iter().flat_map(|all| &all.fields);
    let mut pieces = fields.flat_map(|field| field.pieces());
    let upstream = service.upstream.and_then(|at| document.upstreams.get(at));
    if pieces.any(|piece| *piece == IdentityPiece::Customer) {
        CustomerUse::Identity
    } else if upstream.and_then(|one| one.balance().key) == Some(KeyPart::Customer) {
        CustomerUse::Choice
    } else {
        CustomerUse::Limits
    }
}

/// Does the customer depend on a token, where more than limits looks for the customer? The limits come first.
fn looks_for_claims(service: &Service) -> bool {
    let ask_token = service
        .customers
        .as_deref()
        .is_some_and(Customers::ask_token);
    ask_token && service.customer_use != CustomerUse::Limits && !service.limits.is_empty()
}

fn compare_bodies(limits: &[Arc<Limit>]) -> bool {
    let mut dedupes = limits.iter().filter_map(|limit| limit.dedupe.as_ref());
    dedupes.any(|dedupe| dedupe.of == Sameness::Request)
}

fn ask_token(limits: &[Arc<Limit>]) -> bool {
    limits.iter().any(|limit| limit.asks_token())
}

/// Is one of the limits in no field unless it refuses?
fn hide_one(limits: &[Arc<Limit>]) -> bool {
    limits.iter().any(|limit| !limit.answers.is_shown)
}

/// Finds the limits that may refuse before a token is verified, if tokens decide which route matches.
fn find_early_limits(services: &mut [Service], route_groups: &[Arc<Group>]) {
    if route_groups.iter().any(|group| group.uses_token()) {
        services.iter_mut().for_each(Service::find_early_limits);
    }
}

/// The limits that hold where no route matches, if there are any.
fn unrouted(document: &Document, limits: &ByName<'_>) -> Option<Service> {
    let limits = chosen(document.defaults.limits.entries().iter(), limits);
    (!limits.is_empty()).then(|| Service {
        compares_bodies: compare_bodies(&limits),
        asks_token: ask_token(&limits),
        hides_limits: hide_one(&limits),
        limits,
        ..Service::default()
    })
}

/// The answer of a route without an upstream.
fn static_reply(route: &document::Route) -> Option<StaticReply> {
    if let Some(redirect) = route.redirect.get() {
        return Some(StaticReply::Redirect {
            to: redirected(route).ok().flatten()?,
            status: redirect.status(),
        });
    }
    let respond = route.respond.get()?;
    let body = respond.body();
    let has_type = !body.is_empty() || !respond.content_type.is_absent();
    Some(StaticReply::Respond {
        status: respond.status(),
        body: body.into(),
        content_type: has_type.then(|| respond.content_type()),
    })
}

/// The names, each once, in their order.
fn names<'a>(named: impl Iterator<Item = &'a At<String>>) -> Vec<Arc<str>> {
    let mut seen = HashSet::new();
    let once = named.filter(|at| seen.insert(at.value.as_str()));
    once.map(|at| at.value.as_str().into()).collect()
}

fn routes(document: &Document, rules: Vec<Rule>, services: &[Service]) -> Vec<RouteOutline> {
    let all = rules.into_iter().zip(services).zip(&document.routes);
    all.map(|((rule, service), route)| {
        let rewrite = service.rewrite.as_ref();
        let rewrite = rewrite.map(|template| template.written().to_owned());
        let strips = !route.strip_prefix.is_absent();
        RouteOutline {
            rule,
            upstream: route.upstream.get().map(|name| name.as_str().into()),
            strip_prefix: rewrite.clone().filter(|_| strips),
            rewrite: rewrite.filter(|_| !strips),
            static_reply: service.static_reply.clone(),
            request_headers: service.request_fields.clone(),
            identity: service.identity.clone(),
            response_headers: service.response_fields.clone(),
            limits: names(document.limits_of(route)),
            client_cert: route.client_cert.get().map(|word| word.word()),
            timeout: service.timeout,
            idle: service.idle,
        }
    })
    .collect()
}
