//! Random routes: every kind of condition, every kind of answer, and changes of the request for the upstream.

use super::dice::Dice;
use super::draw_file::DrawnFile;
use std::fmt::Write as _;

/// A route of the file.
#[derive(Debug, Clone)]
pub(super) struct DrawnRoute {
    pub(super) text: String,
    pub(super) host: Option<&'static str>,
    pub(super) path: &'static str,
    pub(super) methods: Vec<&'static str>,
    /// Has the route conditions beyond host, path and method?
    pub(super) has_conditions: bool,
    /// Does the route strip fields that identify the client?
    pub(super) strips: bool,
}

const PATHS: [&str; 9] = [
    "/{*rest}",
    "/one",
    "/one/{id}",
    "/one/{id}/{*rest}",
    "/one/{id}/items",
    "/Two/fixed",
    "/two/{*rest}",
    "/free/{*rest}",
    "/{id}",
];

const HOSTS: [Option<&str>; 6] = [
    None,
    None,
    Some("a.test"),
    Some("b.test"),
    Some("*.a.test"),
    Some("www.a.test"),
];

pub(super) fn draw(
    dice: &mut Dice,
    file: &DrawnFile,
    defaults: &[String],
    has_client: bool,
) -> Vec<DrawnRoute> {
    let mut drawn: Vec<DrawnRoute> = Vec::new();
    let mut places: Vec<(Option<&str>, &str)> = Vec::new();
    for _ in 0..1 + dice.below(4) {
        let place = (
            HOSTS[dice.below(HOSTS.len())],
            PATHS[dice.below(PATHS.len())],
        );
        if places.contains(&place) {
            continue;
        }
        places.push(place);
        // One route of each rank: with conditions, for some methods, and for all other requests.
        let mut twins = vec![Rank::Plain];
        if dice.percent(50) {
            twins.push(Rank::Conditions(1));
            if dice.percent(40) {
                twins.push(Rank::Conditions(2));
            }
        }
        if dice.percent(25) {
            twins.push(Rank::Methods);
        }
        if twins.len() > 1 && dice.percent(25) {
            twins.remove(0);
        }
        for rank in twins {
            let name = format!("r{}", drawn.len());
            drawn.push(draw_one(
                dice, file, defaults, has_client, &name, place, rank,
            ));
        }
    }
    drawn
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Plain,
    Conditions(usize),
    Methods,
}

fn draw_one(
    dice: &mut Dice,
    file: &DrawnFile,
    defaults: &[String],
    has_client: bool,
    name: &str,
    (host, path): (Option<&'static str>, &'static str),
    rank: Rank,
) -> DrawnRoute {
    let mut route = DrawnRoute {
        text: format!("[routes.{name}]\npath = {path:?}\n"),
        host,
        path,
        methods: Vec::new(),
        has_conditions: false,
        strips: false,
    };
    if let Some(host) = host {
        let _ = match dice.percent(20) && host == "a.test" {
            true => writeln!(route.text, "host = [\"a.test\", \"c.test\"]"),
            false => writeln!(route.text, "host = {host:?}"),
        };
    }
    match rank {
        Rank::Methods => {
            route.methods = dice.some(&["GET", "POST", "PUT", "OPTIONS"], 1, 2);
            let _ = writeln!(route.text, "methods = {:?}", route.methods);
        }
        Rank::Conditions(count) => {
            route.has_conditions = true;
            conditions(dice, file, &mut route, count);
        }
        Rank::Plain => {
            if path != "/{*rest}" && path != "/{id}" && dice.percent(15) {
                route.text += "path_case = \"insensitive\"\n";
            }
        }
    }
    let limits = limits(dice, file, defaults, path);
    if !limits.is_empty() {
        let _ = writeln!(route.text, "limits = {limits:?}");
    }
    if has_client && dice.percent(30) {
        let _ = writeln!(
            route.text,
            "client_cert = {:?}",
            dice.pick(&["required", "required", "none"])
        );
    }
    ending(dice, file, &mut route);
    route
}

fn limits(dice: &mut Dice, file: &DrawnFile, defaults: &[String], path: &str) -> Vec<String> {
    let can_be = file.limits.iter().filter(|limit| {
        !defaults.contains(&limit.name) && (path.contains("{id}") || !limit.asks_path)
    });
    let can_be: Vec<String> = can_be.map(|limit| limit.name.clone()).collect();
    let least = usize::from(dice.percent(85));
    let mut limits = dice.some(&can_be, least, 3);
    if let Some(first) = defaults.first()
        && dice.percent(15)
    {
        limits.push(format!("!{first}"));
    }
    limits
}

/// Draws this number of conditions, of different kinds.
fn conditions(dice: &mut Dice, file: &DrawnFile, route: &mut DrawnRoute, count: usize) {
    let mut kinds: Vec<String> = [
        "headers = { x-version = \"2\" }",
        "headers = { x-api-key = true }",
        "headers = { x-consumer = true }",
        "query = { v = \"2\" }",
        "query = { debug = true }",
        "scheme = \"https\"",
        "scheme = \"http\"",
    ]
    .map(str::to_owned)
    .to_vec();
    let groups = file.group_names();
    if !groups.is_empty() {
        for _ in 0..3 {
            kinds.push(format!("groups = {:?}", dice.some(&groups, 1, 2)));
        }
    }
    let mut taken: Vec<String> = Vec::new();
    while taken.len() < count {
        let kind = kinds[dice.below(kinds.len())].clone();
        let key = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        if !taken.iter().any(|one| key(one) == key(&kind)) {
            taken.push(kind);
        }
    }
    for line in taken {
        let _ = writeln!(route.text, "{line}");
    }
}

/// Draws what happens to the route's requests.
fn ending(dice: &mut Dice, file: &DrawnFile, route: &mut DrawnRoute) {
    let out = &mut route.text;
    match dice.weighed(&[14, 2, 2]) {
        1 => {
            let to = match (route.path.contains("{*rest}"), dice.percent(50)) {
                (true, true) => "https://new.test/{*rest}",
                (true, false) => "/elsewhere/{*rest}",
                (false, _) => "/elsewhere",
            };
            let status = dice.pick(&["301", "308"]);
            let _ = writeln!(out, "redirect = {{ to = {to:?}, status = {status} }}");
            return;
        }
        2 => {
            let status = dice.pick(&["200", "410", "503"]);
            let _ = writeln!(
                out,
                "respond = {{ status = {status}, body = \"here\", content_type = \"text/plain\" }}"
            );
            return;
        }
        _ => *out += "upstream = \"main\"\n",
    }
    if route.path.starts_with("/one/") && dice.percent(20) {
        *out += "strip_prefix = \"/one\"\n";
    } else if dice.percent(15) {
        let to = match route.path {
            path if path.contains("{*rest}") => "/v2/{*rest}",
            path if path.contains("{id}") => "/v2/{id}",
            _ => "/v2",
        };
        let _ = writeln!(out, "rewrite = {to:?}");
    }
    if dice.percent(25) {
        let mut fields = Vec::new();
        if file.token_field.is_some() {
            fields.push("x-consumer = \"{jwt:sub}\"");
        }
        if file.groups.iter().any(|one| one.by == "header:x-api-key") {
            fields.extend(["x-plan = \"{tier}\"", "x-group = \"{group}\""]);
        }
        if !fields.is_empty() {
            route.strips = true;
            let fields = dice.some(&fields, 1, 2).join(", ");
            let _ = writeln!(out, "forward_identity = {{ {fields} }}");
        }
    }
    if dice.percent(20) {
        *out += match dice.below(3) {
            0 => "request_headers = { set = { x-tenant = \"set\" } }\n",
            1 => "request_headers = { remove = [\"x-api-key\"] }\n",
            _ => "request_headers = { add = { x-tenant = \"more\" } }\n",
        };
    }
}
