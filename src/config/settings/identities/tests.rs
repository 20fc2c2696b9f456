//! Identities at start and over reloads: pairs that are half-written, broken and repaired, and checks that never get
//! weaker.

use super::Identities;
use crate::config::report::Severity;
use crate::config::report::render::Colour;
use crate::config::{Code, Compiled, EnvironmentFiles, Report, load, reload};
use crate::tls::ServerIdentity;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// A folder with a file that offers one identity, and the identity's files.
struct Folder(tempfile::TempDir);

/// A certificate with this name, and its key.
fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn authority() -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().pem()
}

impl Folder {
    fn new(keys: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write_pair(&pair("api.test"));
        folder.write("ca.pem", &authority());
        folder.write_file(keys);
        folder
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn write_pair(&self, (certificate, key): &(String, String)) {
        self.write("api.pem", certificate);
        self.write("api.key", key);
    }

    /// Writes the file, with more keys of its identity.
    fn write_file(&self, keys: &str) {
        let text = format!(
            "[server]\nlisten = {{ address = \"127.0.0.1:0\", tls = true }}\n\
             [tls.api]\ncert = \"api.pem\"\nkey = \"api.key\"\n{keys}\n\
             [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\n"
        );
        self.write("gateway.toml", &text);
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("gateway.toml")
    }

    fn start(&self) -> Compiled {
        load(&self.file()).unwrap_or_else(|report| panic!("{}", report.human(Colour::Off)))
    }

    fn reload(&self, before: &Identities) -> Result<Compiled, Report> {
        reload(&self.file(), before)
    }

    fn reloaded(&self, before: &Identities) -> Compiled {
        let taken = self.reload(before);
        taken.unwrap_or_else(|report| panic!("{}", report.human(Colour::Off)))
    }
}

/// The diagnostic about a route beside an identity that demands certificates, and its severity.
fn past_a_demand(listen: &str, partners: &str, routes: &str) -> Vec<(Severity, String)> {
    let folder = Folder::new("");
    folder.write(
        "gateway.toml",
        &format!(
            "server.listen = {listen}\n\
             [tls.open]\ncert = \"api.pem\"\nkey = \"api.key\"\nhosts = [\"api.test\"]\ndefault = true\n\
             [tls.partners]\ncert = \"api.pem\"\nkey = \"api.key\"\nclient = \"ca.pem\"\nhosts = [{partners}]\n\
             [groups.known]\nby = \"tls:subject\"\nmembers = [\"CN=anna\"]\n\
             [upstreams.u]\nservers = \"a:1\"\n{routes}"
        ),
    );
    let said = match load(&folder.file()) {
        Ok(compiled) => compiled.warnings,
        Err(report) => report.diagnostics,
    };
    let said = said.into_iter();
    said.filter(|one| one.code == Code::CertificateNotDemanded)
        .map(|one| (one.severity, one.message))
        .collect()
}

#[test]
fn a_route_past_a_demand_is_an_error_where_it_has_hosts() {
    use Severity::{Error, Warning};
    let listener = "{ address = \"127.0.0.1:0\", tls = true }";
    let exact = "\"par.test\"";
    for (partners, routes, said) in [
        // All hosts below the wildcard belong to the identity.
        ("\"*.par.test\"", "r.host = \"*.par.test\"", None),
        ("\"*.par.test\"", "r.host = \"*.a.par.test\"", None),
        ("\"*.par.test\"", "r.host = \"a.b.par.test\"", None),
        (exact, "r.host = \"par.test\"", None),
        (exact, "r.host = \"api.test\"", None),
        (exact, "r.host = \"*.par.test\"", None),
        // The identity's hosts are a part of the route's hosts.
        ("\"a.par.test\"", "r.host = \"*.par.test\"", Some(Error)),
        ("\"*.a.par.test\"", "r.host = \"*.par.test\"", Some(Error)),
        (exact, "r.host = [\"par.test\", \"api.test\"]", Some(Error)),
        (
            exact,
            "r.host = [\"par.test\", \"other.test\"]",
            Some(Error),
        ),
        ("\"*.test\"", "r.host = \"*.test\"", Some(Error)),
        (exact, "r.path = \"/admin/{*rest}\"", Some(Warning)),
        // The route states its intention.
        (exact, "r.host = \"*.test\"\nr.client_cert = \"none\"", None),
        (
            exact,
            "r.host = \"*.test\"\nr.client_cert = \"required\"",
            None,
        ),
        (exact, "r.client_cert = \"none\"", None),
        (exact, "r.groups = \"known\"", None),
        (exact, "r.scheme = \"http\"", None),
        // Another route takes all hosts of the identity.
        (exact, "r.host = \"*.test\"\np.host = \"par.test\"", None),
        (exact, "r.path = \"/{*rest}\"\np.host = \"par.test\"", None),
        (
            "\"*.par.test\"",
            "r.host = \"*.test\"\np.host = \"*.par.test\"",
            None,
        ),
        (
            "\"a.par.test\"",
            "r.host = \"*.test\"\np.host = \"*.par.test\"\np.client_cert = \"none\"",
            None,
        ),
        (
            exact,
            "r.host = \"*.test\"\np.host = \"par.test\"\np.path = \"/p\"",
            Some(Error),
        ),
        (
            exact,
            "r.host = \"*.test\"\np.host = \"par.test\"\np.methods = \"GET\"",
            Some(Error),
        ),
    ] {
        let mut names: Vec<&str> = routes.lines().map(|line| &line[..1]).collect();
        names.dedup();
        let tos = names
            .iter()
            .map(|name| format!("{name}.upstream = \"u\"\n"));
        let routes = format!("[routes]\n{routes}\n{}", tos.collect::<String>());
        let found = past_a_demand(listener, partners, &routes);
        let kinds: Vec<Severity> = found.iter().map(|(severity, _)| *severity).collect();
        assert_eq!(kinds, Vec::from_iter(said), "{partners} {routes} {found:?}");
    }
}

#[test]
fn a_demand_of_one_listener_is_held_against_another() {
    let routes = "[routes.r]\nhost = \"par.test\"\nupstream = \"u\"\n";
    let both = |first: &str| {
        format!(
            "[{{ address = \"{first}\", tls = \"open\" }}, {{ address = \"127.0.0.1:0\", tls = \"partners\" }}]"
        )
    };
    let said = past_a_demand(&both("0.0.0.0:1"), "\"par.test\"", routes);
    let errors = said.iter().filter(|(kind, _)| *kind == Severity::Error);
    assert_eq!(errors.count(), 1, "{said:?}");
    // No other machine connects to a loopback address, unless a proxy there names other clients.
    let loopback = both("127.0.0.1:1");
    assert!(past_a_demand(&loopback, "\"par.test\"", routes).is_empty());
    for (proxies, count) in [("true", 1), ("[\"127.0.0.0/8\"]", 1), ("false", 0)] {
        let proxied = format!("tls = \"open\", proxy_protocol = {proxies}");
        let proxied = loopback.replacen("tls = \"open\"", &proxied, 1);
        let said = past_a_demand(&proxied, "\"par.test\"", routes);
        let errors = said.iter().filter(|(kind, _)| *kind == Severity::Error);
        assert_eq!(errors.count(), count, "{proxies}: {said:?}");
    }
}

fn api(compiled: &Compiled) -> &Arc<ServerIdentity> {
    compiled.identities.named("api").unwrap().identity()
}

fn kept(compiled: &Compiled) -> Option<&str> {
    compiled.identities.named("api").unwrap().kept()
}

fn codes(refused: Result<Compiled, Report>) -> Vec<Code> {
    let report = refused.map(|_| ()).unwrap_err();
    report.diagnostics.iter().map(|one| one.code).collect()
}

#[test]
fn an_unchanged_identity_is_the_same_after_a_reload() {
    let folder = Folder::new("");
    let first = folder.start();
    let second = folder.reloaded(&first.identities);
    assert!(Arc::ptr_eq(api(&first), api(&second)));
    let offered = second.offers[0].as_ref().unwrap().identities();
    assert!(Arc::ptr_eq(&offered[0], api(&first)));
    folder.write_file("min = \"1.3\"");
    let third = folder.reloaded(&second.identities);
    assert!(!Arc::ptr_eq(api(&third), api(&second)));
    assert_eq!(kept(&third), None);
}

#[test]
fn a_broken_pair_leaves_the_one_before_in_force_until_it_is_mended() {
    let folder = Folder::new("");
    let first = folder.start();
    let renewed = pair("renewed.test");
    let partial = &renewed.0[..renewed.0.len() / 2];
    for (certificate, key, why) in [
        (
            renewed.0.as_str(),
            None,
            "is not the key of the certificate",
        ),
        (partial, None, "cannot be used as the certificate"),
        ("", None, "cannot be used as the certificate"),
        (&renewed.0, Some("nothing"), "cannot be used as the key"),
    ] {
        folder.write("api.pem", certificate);
        if let Some(key) = key {
            folder.write("api.key", key);
        }
        let stays = folder.reloaded(&first.identities);
        assert!(Arc::ptr_eq(api(&first), api(&stays)), "{why}");
        assert!(kept(&stays).unwrap().contains(why), "{:?}", kept(&stays));
    }
    fs::remove_file(folder.0.path().join("api.key")).unwrap();
    let stays = folder.reloaded(&first.identities);
    assert!(kept(&stays).unwrap().contains("cannot read `api.key`"));
    folder.write_pair(&renewed);
    let mended = folder.reloaded(&stays.identities);
    assert_eq!(kept(&mended), None);
    assert_eq!(api(&mended).facts().names, ["renewed.test"]);
}

#[test]
fn the_rest_of_a_reload_goes_on_beside_a_broken_pair() {
    let folder = Folder::new("");
    let first = folder.start();
    folder.write("api.key", "nothing");
    folder.write_file("hosts = \"other.test\"\nmin = \"1.3\"");
    let second = folder.reloaded(&first.identities);
    assert!(kept(&second).is_some());
    assert_eq!(api(&second).hosts()[0].as_str(), "other.test");
    assert_eq!(api(&second).facts(), api(&first).facts());
    assert_ne!(api(&second), api(&first));
}

#[test]
fn a_check_of_clients_never_gets_weaker() {
    let folder = Folder::new("client = \"ca.pem\"");
    let first = folder.start();
    for content in [
        "",
        "nothing",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        folder.write("ca.pem", content);
        folder.write_file("client = { ca = \"ca.pem\", verify = \"optional\" }\nmin = \"1.3\"");
        let second = folder.reloaded(&first.identities);
        assert!(Arc::ptr_eq(api(&first), api(&second)), "everything stays");
        assert!(kept(&second).unwrap().contains("authorities"));
    }
    folder.write("ca.pem", &authority());
    folder.write_file("client = { ca = \"ca.pem\", crl = \"gone.pem\" }");
    let second = folder.reloaded(&first.identities);
    assert!(Arc::ptr_eq(api(&first), api(&second)));
    assert!(kept(&second).unwrap().contains("revocation lists"));
    // Without `client` the check is removed on purpose.
    folder.write_file("");
    assert!(api(&folder.reloaded(&second.identities)).client().is_none());
}

#[test]
fn a_check_of_clients_that_is_new_must_be_readable() {
    let folder = Folder::new("");
    let first = folder.start();
    folder.write_file("client = \"gone.pem\"");
    assert_eq!(
        codes(folder.reload(&first.identities)),
        [Code::CertificateUnreadable]
    );
}

#[test]
fn what_is_broken_at_the_start_is_an_error() {
    for (name, content, code) in [
        ("api.key", "nothing".to_owned(), Code::CertificateUnreadable),
        (
            "api.key",
            pair("other.test").1,
            Code::CertificateKeyMismatch,
        ),
        ("ca.pem", String::new(), Code::CertificateUnreadable),
    ] {
        let folder = Folder::new("client = \"ca.pem\"");
        folder.write(name, &content);
        assert_eq!(codes(load(&folder.file())), [code], "{name}");
    }
}

/// A setting that depends on an unreadable identity is not reported as a second mistake.
#[test]
fn nothing_is_missed_that_an_unread_identity_gives() {
    let folder =
        Folder::new("hosts = \"api.test\"\nclient = { ca = \"ca.pem\", crl = \"gone.pem\" }");
    let file = folder.file();
    let text = fs::read_to_string(&file).unwrap();
    let pair = pair("other.test");
    folder.write("other.pem", &pair.0);
    folder.write("other.key", &pair.1);
    let more = "[tls.other]\ncert = \"other.pem\"\nkey = \"other.key\"\n\
        [routes.asks]\nhost = \"api.test\"\nclient_cert = \"required\"\nrespond = { status = 204 }\n";
    fs::write(&file, format!("{text}\n{more}")).unwrap();
    assert_eq!(codes(load(&file)), [Code::CertificateUnreadable]);
}

#[test]
fn no_key_is_shown() {
    let folder = Folder::new("");
    let compiled = folder.start();
    let key = fs::read_to_string(folder.0.path().join("api.key")).unwrap();
    let (printed, _) = crate::config::print(&folder.file(), &EnvironmentFiles::default()).unwrap();
    let shown = format!("{compiled:?}{printed}");
    for line in key.lines().filter(|line| !line.starts_with("--")) {
        assert!(!shown.contains(line));
    }
    assert!(printed.contains("cert = \"/"), "{printed}");
}
