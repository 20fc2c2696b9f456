//! The fields in which common gateways and servers describe a client to the next server: its address, its certificate,
//! and the host, scheme, method or path that it requested. Servers and frameworks trust them regardless of the sender,
//! so that they are dropped from untrusted peers. The fields of the family `X-Forwarded-*` are written anew, in another
//! file.
//!
//! A test compares the list with the page of fields in the manual.

mod filter;

/// The subject of a field's claim about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The client's address.
    Address,
    /// The client's certificate.
    Certificate,
    /// The host, scheme, method or path that the client requested.
    Origin,
}

/// A field that only a gateway in front may write.
#[derive(Debug, Clone, Copy)]
pub struct ClaimedField {
    /// Its name in lower case; a `*` at the end stands for every name with this prefix.
    pub name: &'static str,
    /// The subject that its writer would claim.
    pub claims: Claim,
    /// The gateways that write it, or the servers that trust it.
    pub source: &'static str,
}

macro_rules! claimed {
    ($($claims:ident: $($name:literal $source:literal,)+)+) => {
        /// The fields, by their claims.
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
    "fastly-temp-xff" "Fastly",
    "fly-client-ip" "Fly.io",
    "x-azure-clientip" "Azure Front Door",
    "x-azure-socketip" "Azure Front Door",
    "cloudfront-viewer-address" "Amazon CloudFront",
    "x-appengine-user-ip" "Google App Engine",
    "x-appengine-remote-addr" "Google App Engine, Gin",
    "x-google-real-ip" "Google",
    "x-proxyuser-ip" "Google",
    "x-nf-client-connection-ip" "Netlify",
    "x-vercel-forwarded-for" "Vercel",
    "x-vercel-proxied-for" "Vercel",
    "do-connecting-ip" "DigitalOcean App Platform",
    "incap-client-ip" "Imperva",
    "x-rdwr-ip" "Radware Cloud WAF",
    "x-qrator-ip-source" "Qrator",
    "x-sp-forwarded-ip" "StackPath",
    "ddg-connecting-ip" "DDoS-Guard",
    "x-ah-client-ip" "Acquia",
    "x-sucuri-clientip" "Sucuri",
    "ali-cdn-real-ip" "Alibaba Cloud CDN",
    "ali-real-client-ip" "Alibaba Cloud ESA",
    "cdn-src-ip" "Alibaba Cloud CDN",
    "cdn-real-ip" "Alibaba Cloud CDN",
    "eo-client-ip" "Tencent EdgeOne",
    "eo-connecting-ip" "Tencent EdgeOne",
    "x-envoy-external-address" "Envoy",
    "x-envoy-internal" "Envoy",
    "l5d-remote-ip" "Linkerd",
    "x-amzn-request-context" "AWS Lambda Web Adapter",
    "iv-remote-address" "IBM Security Verify Access",
    "iv-remote-address-ipv6" "IBM Security Verify Access",
    "x-ms-forwarded-client-ip" "Microsoft Exchange, AD FS",
    "x-ms-adfs-proxy-client-ip" "Microsoft AD FS",
    "x-original-forwarded-for" "ingress-nginx",
    "x-original-for" "ASP.NET Core",
    "x-real-ip" "nginx",
    "x-client-ip" "Apache mod_remoteip, request-ip",
    "x-real-client-ip" "applications",
    "x-true-client-ip" "applications",
    "x-cluster-client-ip" "Rackspace, Pulse vTM",
    "x-remote-ip" "Cisco IronPort, applications",
    "x-remote-addr" "applications",
    "x-originating-ip" "Microsoft Exchange",
    "client-ip" "Ruby on Rails, PHP applications",
    "forwarded-for-ip" "PHP applications",
    "x-coming-from" "PHP applications",
    "coming-from" "PHP applications",
    "remote-addr" "applications",
    "proxy-client-ip" "Oracle WebLogic",
    "wl-proxy-client-ip" "Oracle WebLogic",
    "wl-proxy-client-port" "Oracle WebLogic",
    "proxy-ip" "GlassFish",
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
    "sslclientcert*" "F5 BIG-IP",
    "clientcert-*" "Cisco ACE",
    "x-client-cert" "Kong, nginx",
    "x-client-cert-*" "Google Cloud, Kong",
    "x-client-certificate" "nginx",
    "x-client-dn" "nginx",
    "x-client-verify" "nginx",
    "x-client-cn" "nginx",
    "x-client-s-dn" "nginx",
    "x-tls-client-*" "HAProxy, nginx",
    "x-arr-clientcert" "Azure App Service, IIS",
    "ms-aspnetcore-*" "ASP.NET Core behind IIS",
    "x-amzn-mtls-*" "AWS Application Load Balancer",
    "cf-client-cert-*" "Cloudflare",
    "cloudfront-viewer-cert-*" "Amazon CloudFront",
    "x-wso2-client-certificate" "WSO2 API Manager",
    "l5d-client-id" "Linkerd",
    "proxy-auth-cert" "Jetty",
    "proxy-keysize" "GlassFish",
    "wl-proxy-client-cert" "Oracle WebLogic",
    "$wscc" "IBM WebSphere",
    "$wscs" "IBM WebSphere",
    Origin:
    "x-host" "applications, caches",
    "x-original-host" "Azure Application Gateway, ASP.NET Core",
    "x-http-host-override" "applications",
    "x-host-override" "applications",
    "x-vhm-host" "repoze.vhm",
    "x-vhm-root" "repoze.vhm",
    "disguised-host" "Azure App Service, IIS",
    "was-default-hostname" "Azure App Service",
    "x-appengine-default-version-hostname" "Google App Engine",
    "x-envoy-original-host" "Envoy",
    "x-envoy-original-dst-host" "Envoy",
    "l5d-dst-override" "Linkerd",
    "fastly-host" "Fastly",
    "$wssn" "IBM WebSphere",
    "$wssp" "IBM WebSphere",
    "$wspr" "IBM WebSphere",
    "front-end-https" "Microsoft ISA Server, Exchange",
    "front-end-proto" "applications",
    "https" "PHP applications",
    "clientprotocol" "SAP NetWeaver",
    "fastly-ssl" "Fastly",
    "fly-forwarded-port" "Fly.io",
    "fly-forwarded-proto" "Fly.io",
    "fly-forwarded-ssl" "Fly.io",
    "eo-connecting-proto" "Tencent EdgeOne",
    "x-appengine-https" "Google App Engine",
    "x-appservice-proto" "Azure App Service",
    "x-client-scheme" "Alibaba Cloud CDN, Egg.js",
    "x-client-proto" "applications",
    "x-client-ssl" "Platform.sh",
    "x-real-scheme" "applications",
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
    "x-original-prefix" "ASP.NET Core",
    "x-replaced-path" "Traefik",
    "x-script-name" "WSGI, Plack",
    "x-traversal-path" "Plack",
    "x-request-base" "Catalyst",
    "x-request-uri" "applications",
    "x-auth-request-redirect" "oauth2-proxy, ingress-nginx",
    "x-ms-original-url" "Azure Static Web Apps",
    "x-waws-unencoded-url" "Azure App Service",
    "x-netlify-original-pathname" "Netlify",
    "x-netlify-original-search" "Netlify",
    "x-matched-path" "Vercel, Next.js",
    "x-invoke-path" "Next.js",
    "x-apigateway-event" "AWS, serverless-express",
    "x-envoy-original-path" "Envoy",
    "x-envoy-original-method" "Envoy",
    "x-envoy-original-url" "Envoy",
}

/// A field in which a login proxy in front names the user. Some applications trust these fields and others give them to
/// clients, so that they pass.
#[derive(Debug, Clone, Copy)]
pub struct UserField {
    /// Its name in lower case; a `*` at the end stands for every name with this prefix.
    pub name: &'static str,
    /// The gateways that write it, or the servers that trust it.
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
    "x-amzn-lattice-identity" "Amazon VPC Lattice",
    "x-endpoint-api-userinfo" "Google Cloud Endpoints",
    "x-apigateway-api-userinfo" "Google API Gateway",
    "x-pomerium-claim-*" "Pomerium",
    "iv-user" "IBM Security Verify Access",
    "iv-groups" "IBM Security Verify Access",
    "iv-creds" "IBM Security Verify Access",
    "sm-user" "SiteMinder",
    "tailscale-user-login" "Tailscale",
    "$wsru" "IBM WebSphere",
}

/// The claim of an untrusted peer by a field of this name; `None` if the field is not listed. The name is in lower
/// case.
#[must_use]
#[inline]
pub fn claim(name: &str) -> Option<Claim> {
    if filter::may_be_listed(name.as_bytes()) {
        look_up(name)
    } else {
        None
    }
}

/// Hardly any field gets this far that is not in the list.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fmt::Write as _;

    const PAGE: &str = include_str!("../../../docs/who-is-counted.md");

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
