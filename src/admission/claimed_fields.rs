//! The fields in which gateways and servers in wide use tell the next server about a client: its address, its certificate,
//! and the host, scheme, method or path that it asked for. Servers and frameworks believe them without regard to their
//! writer, so they are dropped from strangers. The fields of the family `X-Forwarded-*` are written anew and stand elsewhere.
//!
//! A test compares the list with the page of fields in the manual.

/// What a field says of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The client's address.
    Address,
    /// The client's certificate.
    Certificate,
    /// The host, scheme, method or path that the client asked for.
    Origin,
}

/// A field that only a gateway in front has a right to write.
#[derive(Debug, Clone, Copy)]
pub struct ClaimedField {
    /// Its name in lower case; every name with this beginning where it ends in `*`.
    pub name: &'static str,
    /// What its writer would claim.
    pub claims: Claim,
    /// The gateways that write it, or the servers that believe it.
    pub source: &'static str,
}

macro_rules! claimed {
    ($($claims:ident: $($name:literal $source:literal,)+)+) => {
        /// The fields, by what they claim.
        pub const CLAIMED: &[ClaimedField] = &[$($(ClaimedField {
            name: $name,
            claims: Claim::$claims,
            source: $source,
        },)+)+];
    };
}

claimed! {
    Address:
    "true-client-ip" "Akamai, Cloudflare",
    "cf-connecting-ip" "Cloudflare",
    "cf-connecting-ipv6" "Cloudflare",
    "cf-pseudo-ipv4" "Cloudflare",
    "fastly-client-ip" "Fastly",
    "fly-client-ip" "Fly.io",
    "x-azure-clientip" "Azure Front Door",
    "x-azure-socketip" "Azure Front Door",
    "cloudfront-viewer-address" "Amazon CloudFront",
    "x-appengine-user-ip" "Google App Engine",
    "x-proxyuser-ip" "Google",
    "x-nf-client-connection-ip" "Netlify",
    "x-vercel-forwarded-for" "Vercel",
    "do-connecting-ip" "DigitalOcean App Platform",
    "incap-client-ip" "Imperva",
    "x-sucuri-clientip" "Sucuri",
    "ali-cdn-real-ip" "Alibaba Cloud CDN",
    "ali-real-client-ip" "Alibaba Cloud ESA",
    "cdn-src-ip" "Alibaba Cloud CDN",
    "cdn-real-ip" "Alibaba Cloud CDN",
    "eo-client-ip" "Tencent EdgeOne",
    "x-envoy-external-address" "Envoy",
    "x-original-forwarded-for" "ingress-nginx",
    "x-original-for" "ASP.NET Core",
    "x-real-ip" "nginx",
    "x-client-ip" "Apache mod_remoteip, request-ip",
    "x-cluster-client-ip" "Rackspace, Pulse vTM",
    "x-remote-ip" "Cisco IronPort, applications",
    "x-remote-addr" "applications",
    "x-originating-ip" "Microsoft Exchange",
    "client-ip" "Ruby on Rails, PHP applications",
    "proxy-client-ip" "Oracle WebLogic",
    "wl-proxy-client-ip" "Oracle WebLogic",
    "$wsra" "IBM WebSphere",
    "$wsrh" "IBM WebSphere",
    "x-forwarded" "request-ip",
    "forwarded-for" "request-ip",
    "proxy" "CGI (CVE-2016-5385)",
    Certificate:
    "client-cert" "RFC 9440",
    "client-cert-chain" "RFC 9440",
    "x-forwarded-client-cert" "Envoy",
    "ssl-client-*" "ingress-nginx, Apache",
    "x-ssl-*" "nginx, HAProxy",
    "x-client-cert" "Kong, nginx",
    "x-client-cert-*" "Google Cloud, Kong",
    "x-client-certificate" "nginx",
    "x-client-dn" "nginx",
    "x-client-verify" "nginx",
    "x-arr-clientcert" "Azure App Service, IIS",
    "x-amzn-mtls-*" "AWS Application Load Balancer",
    "cf-client-cert-*" "Cloudflare",
    "proxy-auth-cert" "Jetty",
    "wl-proxy-client-cert" "Oracle WebLogic",
    "$wscc" "IBM WebSphere",
    Origin:
    "x-host" "applications, caches",
    "x-original-host" "Azure Application Gateway, ASP.NET Core",
    "x-http-host-override" "applications",
    "fastly-host" "Fastly",
    "$wssn" "IBM WebSphere",
    "$wssp" "IBM WebSphere",
    "front-end-https" "Microsoft ISA Server, Exchange",
    "x-arr-ssl" "Azure App Service, IIS",
    "x-url-scheme" "gunicorn, Rack",
    "x-scheme" "ingress-nginx, Tornado, Rack",
    "x-original-proto" "ASP.NET Core",
    "x-proxied-https" "Jetty",
    "proxy-ssl-id" "Jetty",
    "wl-proxy-ssl" "Oracle WebLogic",
    "$wsis" "IBM WebSphere",
    "$wssc" "IBM WebSphere",
    "cf-visitor" "Cloudflare",
    "cloudfront-forwarded-proto" "Amazon CloudFront",
    "x-original-method" "ingress-nginx",
    "x-original-uri" "ingress-nginx",
    "x-envoy-original-path" "Envoy",
}

/// A field in which a login in front names the user. Some applications believe them and others give them to clients, so
/// that they pass.
#[derive(Debug, Clone, Copy)]
pub struct UserField {
    /// Its name in lower case; every name with this beginning where it ends in `*`.
    pub name: &'static str,
    /// The gateways that write it, or the servers that believe it.
    pub source: &'static str,
}

macro_rules! users {
    ($($name:literal $source:literal,)+) => {
        /// The fields that name users.
        pub const USERS: &[UserField] = &[$(UserField { name: $name, source: $source },)+];
    };
}

users! {
    "remote-user" "Authelia, Apache, Shibboleth",
    "remote-name" "Authelia",
    "remote-email" "Authelia",
    "remote-groups" "Authelia",
    "x-remote-user" "Kubernetes, Jupyter",
    "x-remote-group" "Kubernetes",
    "x-auth-request-user" "oauth2-proxy",
    "x-auth-request-email" "oauth2-proxy",
    "x-auth-request-groups" "oauth2-proxy",
    "x-auth-request-preferred-username" "oauth2-proxy",
    "x-webauth-user" "Grafana, Gitea",
    "x-authentik-username" "authentik",
    "x-goog-authenticated-user-email" "Google IAP",
    "cf-access-authenticated-user-email" "Cloudflare Access",
    "x-ms-client-principal" "Azure App Service",
    "x-ms-client-principal-name" "Azure App Service",
    "x-amzn-oidc-identity" "AWS Application Load Balancer",
    "x-amzn-oidc-data" "AWS Application Load Balancer",
    "x-consumer-username" "Kong",
    "x-consumer-id" "Kong",
    "tailscale-user-login" "Tailscale",
    "$wsru" "IBM WebSphere",
}

/// What a stranger would claim by a field of this name; nothing where it is no such field. The name is in lower case.
#[must_use]
#[inline]
pub fn claim(name: &str) -> Option<Claim> {
    let bytes = name.as_bytes();
    if NAMES.may_have(whole(bytes)) || BEGINNINGS.may_have(beginning(bytes)) {
        look_up(name)
    } else {
        None
    }
}

/// Hardly any field comes so far: those of the list, and those that agree with one in a few letters.
#[cold]
fn look_up(name: &str) -> Option<Claim> {
    let found = CLAIMED
        .iter()
        .find(|field| match field.name.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == field.name,
        });
    found.map(|field| field.claims)
}

/// Which of 256 marks are set. A name whose mark is not set is not in the list.
struct Marks([u64; 4]);

impl Marks {
    #[inline]
    const fn may_have(&self, mark: u8) -> bool {
        self.0[(mark >> 6) as usize] >> (mark & 63) & 1 == 1
    }
}

/// The mark of a name, by its length and three of its letters.
#[inline]
const fn whole(name: &[u8]) -> u8 {
    let [.., before, last] = name else { return 0 };
    let middle = name[name.len() / 2];
    (name.len() as u8)
        .wrapping_mul(31)
        .wrapping_add(before.wrapping_mul(7))
        .wrapping_add(last.wrapping_mul(3))
        .wrapping_add(middle.wrapping_mul(59))
}

/// The mark of a beginning of at least six letters.
#[inline]
const fn beginning(name: &[u8]) -> u8 {
    let [first, _, third, fourth, _, sixth, ..] = name else {
        return 0;
    };
    first
        .wrapping_mul(31)
        .wrapping_add(third.wrapping_mul(7))
        .wrapping_add(fourth.wrapping_mul(59))
        .wrapping_add(sixth.wrapping_mul(3))
}

/// The marks of whole names.
static NAMES: Marks = marks(false);
/// The marks of beginnings.
static BEGINNINGS: Marks = marks(true);

const fn marks(of_beginnings: bool) -> Marks {
    let mut marks = [0; 4];
    let mut at = 0;
    while at < CLAIMED.len() {
        let name = CLAIMED[at].name.as_bytes();
        let is_beginning = matches!(name, [.., b'*']);
        if is_beginning == of_beginnings {
            let mark = if is_beginning {
                beginning(name)
            } else {
                whole(name)
            };
            marks[(mark >> 6) as usize] |= 1 << (mark & 63);
        }
        at += 1;
    }
    Marks(marks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fmt::Write as _;

    const PAGE: &str = include_str!("../../docs/who-is-counted.md");

    #[test]
    fn every_field_of_the_list_is_claimed_and_no_usual_one() {
        let mut seen = HashSet::new();
        for field in CLAIMED {
            assert!(seen.insert(field.name), "{} stands there twice", field.name);
            assert_eq!(field.name, field.name.to_ascii_lowercase());
            let name = field.name.replace('*', "anything");
            assert_eq!(claim(&name), Some(field.claims), "{name}");
            assert!(
                http::HeaderName::from_bytes(name.as_bytes()).is_ok(),
                "{name}"
            );
            let beginning = field.name.strip_suffix('*');
            assert!(
                beginning.is_none_or(|beginning| beginning.len() >= 6),
                "{}",
                field.name
            );
        }
        for name in USERS.iter().map(|field| field.name).chain([
            "",
            "x",
            "xx",
            "host",
            "x-api-key",
            "x-ssl",
            "ssl-client",
            "x-forwarded-for",
            "x-client-certain",
            "x-real-ips",
            "idempotency-key",
            "sec-fetch-mode",
            "client",
            "cf-ray",
            "traceparent",
        ]) {
            assert_eq!(claim(name), None, "{name}");
        }
    }

    /// A plain request's fields are told from the list by their marks alone.
    #[test]
    fn usual_fields_are_not_looked_up() {
        const USUAL: [&str; 24] = [
            "host",
            "user-agent",
            "accept",
            "accept-encoding",
            "accept-language",
            "authorization",
            "connection",
            "content-type",
            "content-length",
            "cookie",
            "origin",
            "referer",
            "cache-control",
            "pragma",
            "dnt",
            "upgrade-insecure-requests",
            "sec-fetch-site",
            "sec-fetch-mode",
            "sec-fetch-dest",
            "sec-ch-ua",
            "sec-ch-ua-mobile",
            "sec-ch-ua-platform",
            "if-none-match",
            "x-api-key",
        ];
        let marked = USUAL.iter().filter(|name| {
            NAMES.may_have(whole(name.as_bytes()))
                || BEGINNINGS.may_have(beginning(name.as_bytes()))
        });
        let marked: Vec<_> = marked.collect();
        assert!(marked.len() <= 6, "{marked:?}");
    }

    #[test]
    fn the_page_has_the_list() {
        let mut table =
            String::from("| field | what it claims | written or believed by |\n|---|---|---|\n");
        for field in CLAIMED {
            let claims = match field.claims {
                Claim::Address => "the client's address",
                Claim::Certificate => "a client certificate",
                Claim::Origin => "host, scheme, method or path",
            };
            let _ = writeln!(table, "| `{}` | {claims} | {} |", field.name, field.source);
        }
        let mut users = String::from("| field | written or believed by |\n|---|---|\n");
        for field in USERS {
            let _ = writeln!(users, "| `{}` | {} |", field.name, field.source);
        }
        for table in [table, users] {
            assert!(
                PAGE.contains(&table),
                "docs/who-is-counted.md must have\n{table}"
            );
        }
    }
}
