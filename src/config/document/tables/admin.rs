//! `[admin]`, and the tables of its tokens.

use crate::admin::{AccessRules, ReadAccess, Role};
use crate::config::document::tables::store::{SecretSource, secret};
use crate::config::document::{
    Emptiness, Fields, Items, List, Section as _, ValueShape, Words as _, any, custom, describe,
    empty_list, filled_list, table, text_as, text_form, texts, whole, word, words,
};
use crate::config::input::At;
use crate::config::presentation::{ShownValue, list, show, show_list};
use crate::config::report::{Code, Details as _};
use crate::config::value::{admin_address, admin_host, file_mode, gateway_name, quoted};
use crate::listen::listener::ListenAddress;
use toml::de::DeValue;

/// The rights on the file of the admin listener's Unix socket, if the file sets none.
pub(in crate::config) const ADMIN_MODE: u32 = 0o600;

table! {
    /// Metrics, health, the state of the gateway and changes of it, on addresses of their own. Without this table there
    /// are no such addresses.
    Admin = ADMIN, "admin", "the admin listener", later &["certificates", "addresses", "health"];

    /// The admin listener's addresses, apart from those of `[server]`: one or a list, each an address and a port,
    /// `unix:/path` or `systemd:NAME`, as there. `:port` is every address of IPv4. Every client that reaches an address
    /// can read `/metrics`, `/healthz` and `/readyz`; `docs/admin-api.md` has the rules for the rest.
    listen: Items<ListenAddress> = filled_list(ValueShape::ListenAddresses, admin_address, empty_list("write `\"127.0.0.1:9090\"`, or leave it out")),
        Value("\"127.0.0.1:9090\""), "[\"127.0.0.1:9090\", \"unix:/run/tollgate/admin.sock\"]",
        Restart(|boot| boot.admin.as_ref().map_or_else(|| show("off"), |admin| show_list(&admin.listen)));

    /// The rights on the file of the admin listener's Unix socket, as `chmod` takes them. A process that can connect to
    /// the socket can read everything that the listener shows.
    mode: u32 = text_form(file_mode), Value("\"0600\""), "\"0660\"",
        Restart(|boot| show(format!("{:04o}", boot.admin.as_ref().map_or(ADMIN_MODE, |admin| admin.mode))));

    /// The name of this gateway in the answers of its admin listener.
    name: String = text_form(gateway_name), Words("the machine's name"), "\"edge-1\"",
        Restart(|boot| show(boot.admin.as_ref().and_then(|admin| admin.name.as_deref()).unwrap_or("the machine's")));

    /// Further names by which the admin listener may be asked, beside its address, `localhost` and the machine's name.
    hosts: Items<String> = texts(admin_host), Words("none"), "[\"tollgate.internal\"]",
        Gateway(|file| file.boot.admin.as_ref().and_then(|admin| show_list(&admin.access.hosts)));

    /// The token with which everything may be read and changed; it counts as a token `admin` with the role `operate`. At
    /// least 32 characters, best kept in a file or in the environment: a file is watched. Without any token nothing can
    /// be changed, and reading beyond this machine is refused.
    token: SecretSource = custom(ValueShape::Secret, secret), Words("none"), "{ file = \"/run/secrets/tollgate-admin\" }",
        Gateway(|file| file.boot.admin.as_ref().map(|admin| shown_tokens(&admin.access)));

    /// Tokens of several operators, by name. Changes are recorded with the name.
    tokens: Items<AdminToken> = custom(ValueShape::Named(&ADMIN_TOKEN), tokens), Words("none"), "{ anna = { token = { env = \"TOLLGATE_TOKEN_ANNA\" }, role = \"operate\" } }";

    /// The clients that may read without a token: with `local` those that connect to a loopback address or to a Unix
    /// socket, with `token` none. `token` is for machines where other services can be made to fetch addresses.
    read: ReadAccess = word(), Value("\"local\""), "\"token\"",
        Gateway(|file| file.boot.admin.as_ref().and_then(|admin| show(admin.access.read.word())));

    /// The file with a record of each change, beside this file where it has no slash in front. It is opened for
    /// appending at each record, with mode 0600 where it is new. While it cannot be written, changes are refused.
    audit: String = text_as(ValueShape::File, any), Words("the gateway's own log"), "\"/var/log/tollgate/audit.json\"",
        Gateway(|file| file.boot.admin.as_ref().and_then(|admin| shown_audit(&admin.access)));
}

table! {
    /// A token for the admin listener.
    AdminToken { name } = ADMIN_TOKEN, "admin", "an admin token";

    /// The token, at least 32 characters, best kept in a file or in the environment.
    token: SecretSource = custom(ValueShape::Secret, secret), Required, "{ env = \"TOLLGATE_TOKEN_ANNA\" }";

    /// What the token allows: to `read`, or to `operate`, which is to read and to change.
    role: Role = word(), Value("\"read\""), "\"operate\"";
}

words! { Role: Read "read", Operate "operate" }
words! { ReadAccess: Local "local", Token "token" }

/// The tokens in words. Two readings with other texts of tokens differ.
fn shown_tokens(rules: &AccessRules) -> ShownValue {
    ShownValue {
        text: list(&rules.described()),
        whole: Some(format!(
            "{:?}",
            rules
                .tokens
                .iter()
                .map(|one| (&one.name, one.role, one.digest.bytes()))
                .collect::<Vec<_>>()
        )),
    }
}

fn shown_audit(rules: &AccessRules) -> Option<ShownValue> {
    match &rules.audit {
        Some(path) => show(path.display()),
        None => show("the log"),
    }
}

/// The report on a table without tokens.
const NO_TOKEN: Emptiness = Emptiness {
    message: "names no token",
    label: "at least one",
    help: "leave it out, or write `tokens.anna = { token = { env = \"TOLLGATE_TOKEN_ANNA\" } }`",
};

/// Tables by the names of tokens.
fn tokens(key: &'static str, fields: &mut Fields<'_>) -> List<AdminToken> {
    let tokens = fields.named(key, |fields, name, value| {
        let DeValue::Table(table) = value.get_ref() else {
            let found = describe(value.get_ref());
            let message = format!("the token {} is a table, not {found}", quoted(&name.value));
            let name = name.value.escape_debug();
            fields
                .error(Code::WrongType, message)
                .at(&value.span(), "")
                .help(format!(
                    "write `tokens.{name} = {{ token = {{ env = \"NAME\" }} }}`"
                ));
            return None;
        };
        let path = format!("{key}.{}", name.value);
        let read = |fields: &mut Fields<'_>| {
            let read = AdminToken::read(fields);
            whole(read, fields)
        };
        let token = fields.inner(&ADMIN_TOKEN, &path, name, table, read)?;
        Some(At::new(token, value.span()))
    });
    fields.filled(key, tokens, &NO_TOKEN)
}
