//! Where a file puts its admin listener, and where it keeps tokens: for commands, which read nothing else of the file. A
//! variable that is not set elsewhere in the file, or a missing certificate, keeps no command from its gateway.

use crate::admin::Role;
use crate::listen::listener::ListenAddress;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The admin listener of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminPlace {
    /// Its addresses.
    pub listen: Vec<ListenAddress>,
    /// Its tokens, in the order in which the gateway knows them.
    pub tokens: Vec<TokenPlace>,
}

/// A token of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPlace {
    /// What it allows.
    pub role: Role,
    place: TokenSource,
}

#[derive(Clone, PartialEq, Eq)]
enum TokenSource {
    Literal(String),
    File(PathBuf),
    Variable(String),
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Literal(_) => "in the file",
            Self::File(_) => "in another file",
            Self::Variable(_) => "in a variable",
        })
    }
}

impl TokenPlace {
    /// The token, if it can be read here.
    #[must_use]
    pub fn read(&self) -> Option<String> {
        let text = match &self.place {
            TokenSource::Literal(text) => text.clone(),
            TokenSource::File(path) => std::fs::read_to_string(path).ok()?,
            TokenSource::Variable(name) => std::env::var(name).ok()?,
        };
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// The admin listener of the file at `path`; `None` without `[admin]`.
///
/// # Errors
/// If the file cannot be read, or `[admin]` is not understood.
pub fn admin_place(path: &Path) -> io::Result<Option<AdminPlace>> {
    let text = std::fs::read_to_string(path)?;
    let root: Table = text
        .parse()
        .map_err(|_| io::Error::other("the file is not TOML: `tollgate check` says where"))?;
    let Some(Value::Table(admin)) = root.get("admin") else {
        return Ok(None);
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let listen = match admin.get("listen") {
        None => vec!["127.0.0.1:9090".to_owned()],
        Some(value) => texts(value),
    };
    let listen = listen.iter().map(|text| {
        let text = filled(text)?;
        let address = super::value::admin_address(&text).map_err(|_| {
            io::Error::other(format!("`{text}` is no address of an admin listener"))
        })?;
        Ok(match address {
            ListenAddress::Unix(file) => ListenAddress::Unix(folder.join(file).into()),
            other => other,
        })
    });
    let listen: io::Result<Vec<ListenAddress>> = listen.collect();
    Ok(Some(AdminPlace {
        listen: listen?,
        tokens: tokens(admin, folder),
    }))
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

fn tokens(admin: &Table, folder: &Path) -> Vec<TokenPlace> {
    let alone = admin.get("token").and_then(|token| place(token, folder));
    let alone = alone.map(|place| TokenPlace {
        role: Role::Operate,
        place,
    });
    let named = admin.get("tokens").and_then(Value::as_table);
    let named = named.into_iter().flatten().filter_map(|(_, token)| {
        let role = match token.get("role").and_then(Value::as_str) {
            Some("operate") => Role::Operate,
            _ => Role::Read,
        };
        let place = place(token.get("token")?, folder)?;
        Some(TokenPlace { role, place })
    });
    alone.into_iter().chain(named).collect()
}

fn place(token: &Value, folder: &Path) -> Option<TokenSource> {
    if let Some(text) = token.as_str() {
        return filled(text).ok().map(TokenSource::Literal);
    }
    let named = |key: &str| token.get(key).and_then(Value::as_str);
    match (named("file"), named("env")) {
        (Some(file), None) => Some(TokenSource::File(folder.join(filled(file).ok()?))),
        (None, Some(name)) => Some(TokenSource::Variable(name.to_owned())),
        _ => None,
    }
}

/// A text with the values of its variables.
fn filled(text: &str) -> io::Result<String> {
    let mut pieces = text.split("${");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (inner, rest) = piece
            .split_once('}')
            .ok_or_else(|| io::Error::other("a variable in [admin] has no end"))?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let value = std::env::var(name).ok().or(default.map(str::to_owned));
        let value = value.ok_or_else(|| {
            io::Error::other(format!(
                "[admin] names the variable {name}, which is not set"
            ))
        })?;
        filled.push_str(&value);
        filled.push_str(rest);
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_place(text: &str) -> io::Result<Option<AdminPlace>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        std::fs::write(folder.path().join("t"), "secret-in-a-file\n").unwrap();
        admin_place(&file).map(|place| {
            place.map(|mut place| {
                for token in &mut place.tokens {
                    token.place = TokenSource::Literal(token.read().unwrap_or_default());
                }
                place
            })
        })
    }

    #[test]
    fn nothing_but_the_table_is_read() {
        assert_eq!(
            read_place("[server]\nlisten = \"${NOWHERE_SET}\"\n").unwrap(),
            None
        );
        let place = read_place("[store]\nurl = \"${NOWHERE_SET}\"\n[admin]\n")
            .unwrap()
            .unwrap();
        let usual: std::net::SocketAddr = ([127, 0, 0, 1], 9090).into();
        assert_eq!(place.listen, [ListenAddress::Tcp(usual)]);
        assert!(read_place("[admin]\nlisten = \"${NOWHERE_SET}\"\n").is_err());
        let place = read_place(
            "[admin]\nlisten = [\"127.0.0.1:${NOWHERE_SET:-81}\", \"unix:a\"]\ntoken = { file = \"t\" }\n[admin.tokens.x]\ntoken = \"literal\"\n",
        );
        let place = place.unwrap().unwrap();
        assert_eq!(place.listen.len(), 2);
        assert!(place.listen[1].to_string().ends_with("/a"));
        let read: Vec<_> = place
            .tokens
            .iter()
            .map(|one| (one.role, one.read()))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            read,
            [
                (Role::Operate, text("secret-in-a-file")),
                (Role::Read, text("literal"))
            ]
        );
    }
}
