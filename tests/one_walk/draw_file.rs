//! A random gateway file: listeners, trust, tokens, groups, limits and routes.

use super::dice::Dice;
use super::draw_limits::{self, DrawnLimit};
use super::draw_routes::{self, DrawnRoute};
use super::world::World;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// A file, and the properties by which its requests are drawn.
#[derive(Debug, Clone, Default)]
pub(super) struct DrawnFile {
    pub(super) text: String,
    /// The port of the listener without TLS.
    pub(super) plain: u16,
    /// Does this listener redirect everything to `https`?
    pub(super) redirects: bool,
    /// The port of the listener with TLS.
    pub(super) tls: Option<u16>,
    /// The field that contains the token, if the file has `[jwt]`.
    pub(super) token_field: Option<&'static str>,
    /// Are the keys of tokens read from a URL?
    pub(super) keys_by_url: bool,
    /// Do the rates leave room for only a few requests?
    pub(super) is_tight: bool,
    pub(super) groups: Vec<DrawnGroup>,
    /// Does a group name customers?
    pub(super) names_customers: bool,
    pub(super) limits: Vec<DrawnLimit>,
    pub(super) routes: Vec<DrawnRoute>,
}

/// A group of the file.
#[derive(Debug, Clone)]
pub(super) struct DrawnGroup {
    pub(super) name: &'static str,
    pub(super) by: &'static str,
    /// Are its members credentials of the customer `acme`?
    pub(super) is_named: bool,
}

/// The peer that most files trust.
const TRUSTED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The groups that a file may have, each with its members.
const GROUPS: [(&str, &str, &str); 11] = [
    ("gold", "header:x-api-key", "[\"k-gold\", \"k-both\"]"),
    ("staff", "ip", "[\"127.0.0.3\", \"203.0.113.0/24\"]"),
    ("crew", "cookie:sid", "[\"s-crew\"]"),
    ("beta", "query:k", "[\"q-beta\", \"a b\"]"),
    ("shop", "host", "[\"www.a.test\"]"),
    ("plan", "jwt:app.plan", "[\"pro\"]"),
    ("users", "jwt:sub", "[\"anna\"]"),
    ("named", "tls:subject", "[\"CN=client one\"]"),
    // `a:b` and `anna:pw`.
    (
        "desk",
        "basic",
        "[\"sha256:6783a31eabf68ccc0660f935c0826282bdd2241f3a80a9f2d10d59aea9ebb5d8\", \
          \"sha256:b696b8fd19b386ebe4adf85f0a26c9c476d12bd16d141e4e8c848c5e90f7c08c\"]",
    ),
    ("place", "path:id", "[\"42\"]"),
    ("vip", "customer", "[\"acme\"]"),
];

impl DrawnFile {
    pub(super) fn draw(dice: &mut Dice, world: &World, ports: [u16; 3]) -> Self {
        let mut file = Self {
            plain: ports[0],
            tls: dice.percent(35).then_some(ports[1]),
            is_tight: dice.percent(30),
            ..Self::default()
        };
        file.redirects = file.tls.is_some() && dice.percent(30);
        let (has_client, identities) = identities(dice, world, file.tls.is_some());
        let jwt = file.tokens(dice, world);
        file.draw_groups(dice, has_client);
        file.limits = draw_limits::draw(dice, &file, has_client);
        let defaults: Vec<&DrawnLimit> = file.limits.iter().filter(|one| !one.asks_path).collect();
        let defaults = match dice.percent(40) {
            true => dice.some(&defaults, 1, 2),
            false => Vec::new(),
        };
        let defaults: Vec<String> = defaults.iter().map(|one| one.name.clone()).collect();
        file.routes = draw_routes::draw(dice, &file, &defaults, has_client);
        file.text = file.server(dice, ports[2]);
        file.text += &identities;
        file.text += &jwt;
        if !defaults.is_empty() {
            let _ = writeln!(file.text, "[defaults]\nlimits = {defaults:?}");
        }
        let groups = GROUPS
            .iter()
            .filter(|(name, ..)| file.groups.iter().any(|one| one.name == *name));
        for (name, by, members) in groups {
            let _ = write!(file.text, "[groups.{name}]\nby = {by:?}\n");
            let is_named = |one: &DrawnGroup| one.name == *name && one.is_named;
            if file.groups.iter().any(is_named) {
                let _ = writeln!(file.text, "customers = {{ {}}}", customers(name, members));
            } else if dice.percent(25) && *by != "tls:subject" {
                let place = world.members_file(name, members);
                let _ = writeln!(file.text, "file = {place:?}");
            } else {
                let _ = writeln!(file.text, "members = {members}");
            }
        }
        let _ = writeln!(
            file.text,
            "[upstreams.main]\nservers = {:?}",
            world.upstream_url()
        );
        for limit in &file.limits {
            file.text += &limit.text;
        }
        for route in &file.routes {
            file.text += &route.text;
        }
        file
    }

    /// The table `[server]` with its listeners, and the tables without influence.
    fn server(&self, dice: &mut Dice, admin: u16) -> String {
        let redirect = if self.redirects {
            ", redirect = \"https\""
        } else {
            ""
        };
        let mut listen = format!("{{ address = \"127.0.0.1:{}\"{redirect} }}", self.plain);
        if let Some(port) = self.tls {
            let _ = write!(listen, ", {{ address = \"127.0.0.1:{port}\", tls = true }}");
        }
        let mut text = format!("[server]\nworkers = 1\nlisten = [{listen}]\n");
        if dice.percent(60) {
            let _ = writeln!(text, "trust = [\"{TRUSTED}/32\", \"10.0.0.0/8\"]");
            match dice.below(4) {
                0 => text += "trust_field = \"forwarded\"\n",
                1 => text += "trust_field = \"x-forwarded-for\"\n",
                2 => text += "trust_field = \"x-real-ip\"\n",
                _ => {}
            }
            if dice.percent(20) {
                text += "nat64 = [\"2001:db8:64::/96\"]\n";
            }
        }
        let _ = write!(
            text,
            "[log]\naccess = \"json\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n"
        );
        text
    }

    /// The table `[jwt]`, which most files have.
    fn tokens(&mut self, dice: &mut Dice, world: &World) -> String {
        if dice.percent(40) {
            return String::new();
        }
        let field = dice.pick(&["authorization", "authorization", "x-token"]);
        self.token_field = Some(field);
        let mut text = format!("[jwt]\nheader = {field:?}\n");
        match dice.weighed(&[4, 2, 2, 3]) {
            0 => text += &format!("keys = {:?}\nalgorithms = [\"HS256\"]\n", world.secret()),
            1 => {
                let keys = format!("{{ file = {:?}, kid = \"one\" }}", world.secret());
                text += &format!("keys = [{keys}]\nalgorithms = [\"HS256\", \"HS384\"]\n");
            }
            2 => text += &format!("jwks = {:?}\nalgorithms = [\"HS256\"]\n", world.key_set()),
            _ => {
                self.keys_by_url = true;
                text += &format!("jwks = {:?}\nalgorithms = [\"RS256\"]\n", world.key_url());
            }
        }
        if dice.percent(25) {
            text += "issuer = [\"https://id.test\"]\n";
        }
        if dice.percent(25) {
            text += "audience = \"api\"\n";
        }
        if dice.percent(25) {
            text += "require_exp = false\n";
        }
        if dice.percent(25) {
            text += "leeway = \"30s\"\n";
        }
        text
    }

    fn draw_groups(&mut self, dice: &mut Dice, has_client: bool) {
        let can_be = GROUPS.iter().filter(|(_, by, _)| {
            (self.token_field.is_some() || !by.starts_with("jwt:"))
                && (has_client || !by.starts_with("tls:"))
                && *by != "customer"
        });
        let can_be: Vec<_> = can_be.copied().collect();
        let drawn = dice.some(&can_be, 0, 4);
        for (name, by, _) in drawn {
            // A part of the path is not known where a route is looked for.
            let is_named = by != "path:id" && dice.percent(40);
            self.names_customers |= is_named;
            self.groups.push(DrawnGroup { name, by, is_named });
        }
        if self.names_customers && dice.percent(60) {
            let (name, by) = ("vip", "customer");
            self.groups.push(DrawnGroup {
                name,
                by,
                is_named: false,
            });
        }
    }

    /// Is this peer trusted to report the scheme of a request?
    pub(super) fn trusts(&self, peer: Ipv4Addr) -> bool {
        peer == TRUSTED && self.text.contains("\ntrust = ")
    }

    /// The names of the groups that are not found by a part of the path.
    pub(super) fn group_names(&self) -> Vec<&'static str> {
        let groups = self.groups.iter().filter(|one| one.by != "path:id");
        groups.map(|one| one.name).collect()
    }

    /// Does the file read users or passwords?
    pub(super) fn reads_basic(&self) -> bool {
        self.text.contains("\"basic")
    }

    pub(super) fn has_groups_by(&self, by: &str) -> bool {
        self.groups.iter().any(|one| one.by == by)
    }
}

/// The members as customers: the first is `acme`, another one the group's own.
fn customers(name: &str, members: &str) -> String {
    let members: Vec<String> = serde_json::from_str(members).unwrap();
    let names = ["acme", name];
    let named = names.iter().zip(&members);
    let named = named.map(|(name, member)| format!("{name} = [{member:?}], "));
    named.collect()
}

/// The tables of identities. Returns whether any client is asked for a certificate.
fn identities(dice: &mut Dice, world: &World, has_tls: bool) -> (bool, String) {
    if !has_tls {
        return (false, String::new());
    }
    let mut text = world.identity("a");
    text += "default = true\n";
    let other = dice.weighed(&[2, 3, 2, 1]);
    let authorities = world.authorities();
    match other {
        0 => {}
        1 => {
            text += &world.identity("b");
            text += &format!("client = {{ ca = {authorities:?}, verify = \"optional\" }}\n");
        }
        2 => {
            text += &world.identity("b");
            text += &format!("client = {authorities:?}\n");
        }
        _ => {
            text += &format!("client = {{ ca = [{authorities:?}], verify = \"optional\" }}\n");
            text += &world.identity("b");
        }
    }
    (other > 0, text)
}
