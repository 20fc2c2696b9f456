//! Addresses to listen on, networks, hosts and methods.

use super::{Code, ValueError};
use crate::config::report::nearest;
use crate::key::client_ip::{Field, NamingField};
use crate::listen::listener::ListenAddress;
use crate::route::HostPattern;
use http::{HeaderName, Method};
use ipnet::{IpNet, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Reads `host:port` or `:port`, which is every address of IPv4. A name is not resolved: its address may differ from
/// one start to the next.
pub(in crate::config) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(
            Code::BadAddress,
            text,
            "is not an address to listen on",
            label,
        )
        .help("write `\":8080\"` for every address, or `\"127.0.0.1:8080\"`")
    };
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(wrong(&format!("`{scheme}://` is not part of an address"))
            .offer([rest.trim_end_matches('/')]));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let Some((host, port)) = text
        .rsplit_once(':')
        .filter(|_| text.parse::<IpAddr>().is_err())
    else {
        return Err(match (text.parse::<u16>(), text.parse::<IpAddr>()) {
            (Ok(_), _) => wrong("a port needs a colon in front").offer([format!(":{text}")]),
            (_, Ok(IpAddr::V6(v6))) => wrong("an IPv6 address needs brackets, and then its port")
                .offer([in_brackets(text).unwrap_or_else(|| format!("[{v6}]:8080"))]),
            _ => wrong("no port").offer([format!("{text}:8080")]),
        });
    };
    let port: u16 = port
        .parse()
        .map_err(|_| wrong("the port must be a number from 0 to 65535"))?;
    let host: IpAddr = match host {
        "" | "*" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ if host.contains(':') && host.parse::<Ipv6Addr>().is_ok() => {
            return Err(wrong("an IPv6 address needs brackets").offer([format!("[{host}]:{port}")]));
        }
        _ => {
            return Err(
                wrong("the host must be an address, not a name").help(format!(
                    "write the address itself, or `\":{port}\"` for every address"
                )),
            );
        }
    };
    Ok(SocketAddr::new(host, port))
}

/// The text with brackets: `::1:8080` could be a plain address, but more likely has a port.
fn in_brackets(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    (port.len() >= 2 && host.parse::<Ipv6Addr>().is_ok()).then(|| format!("[{host}]:{port}"))
}

/// The longest path of a Unix socket: the system accepts 107 bytes.
const LONGEST_PATH: usize = 107;

/// Reads an address of a listener.
pub(in crate::config) fn listen_address(text: &str) -> Result<ListenAddress, ValueError> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket_path(text, path).map(|path| ListenAddress::Unix(Path::new(path).into()));
    }
    if let Some(name) = text.strip_prefix("systemd:") {
        return socket_name(text, name).map(|name| ListenAddress::Systemd(name.into()));
    }
    let address = address(text)?;
    Ok(match text.rsplit_once(':') {
        Some(("" | "*", _)) => ListenAddress::EveryAddress(address.port()),
        _ => ListenAddress::Tcp(address),
    })
}

/// Reads an address of the admin listener. A port alone means every address of IPv4.
pub(in crate::config) fn admin_address(text: &str) -> Result<ListenAddress, ValueError> {
    listen_address(text).map(ListenAddress::in_ipv4)
}

/// Reads a name by which the admin listener may be asked: a host without a port.
pub(in crate::config) fn admin_host(text: &str) -> Result<String, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadHost, text, "is no name of a host", label)
            .help("write the name alone, as `\"tollgate.internal\"`")
    };
    if text.contains('*') {
        return Err(wrong("each name is written out"));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_address = text.parse::<IpAddr>().is_ok();
    if text.is_empty() || text.len() > 253 || !(is_address || text.bytes().all(is_name)) {
        return Err(wrong(
            "letters, digits, dots and hyphens, without a scheme and a port",
        ));
    }
    Ok(text.trim_end_matches('.').to_ascii_lowercase())
}

/// Reads the name of a gateway: it stands in answers, in lines of terminals and in keys of lists.
pub(in crate::config) fn gateway_name(text: &str) -> Result<String, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(is_part) {
        let label = "1 to 64 letters, digits, dots, hyphens and underscores";
        return Err(ValueError::of(
            Code::BadName,
            text,
            "is no name of a gateway",
            label,
        ));
    }
    Ok(text.to_owned())
}

fn socket_path<'a>(text: &str, path: &'a str) -> Result<&'a str, ValueError> {
    let wrong = |label: &str| {
        let what = "names no file of a Unix socket";
        let example = "write `\"unix:/run/tollgate/http.sock\"`";
        ValueError::of(Code::BadAddress, text, what, label).help(example)
    };
    if path.is_empty() || path.ends_with('/') {
        return Err(wrong("write the path of a file after `unix:`"));
    }
    if path.starts_with('@') {
        return Err(wrong(
            "every process could connect to a name without a file: a file has rights",
        ));
    }
    if path.len() > LONGEST_PATH || path.contains('\0') {
        return Err(wrong("a socket's path has at most 107 bytes"));
    }
    if path.starts_with("//") {
        let path = path.trim_start_matches('/');
        return Err(wrong("one slash is enough").offer([format!("unix:/{path}")]));
    }
    Ok(path)
}

fn socket_name<'a>(text: &str, name: &'a str) -> Result<&'a str, ValueError> {
    // systemd.socket(5): `FileDescriptorName`.
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    if (1..=255).contains(&name.len()) && name.bytes().all(is_name) {
        return Ok(name);
    }
    let what = "names no socket of systemd";
    let label = "write its `FileDescriptorName` after `systemd:`";
    let wrong = ValueError::of(Code::BadAddress, text, what, label);
    Err(wrong.help("write `\"systemd:https\"`"))
}

/// Reads the mode of a file, as `chmod` accepts it.
pub(in crate::config) fn file_mode(text: &str) -> Result<u32, ValueError> {
    let digits = text.len() == 3 || text.len() == 4 && text.starts_with('0');
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| digits && *mode <= 0o777).ok_or_else(|| {
        let label = "three octal digits: owner, group, others";
        let wrong = ValueError::of(Code::BadNumber, text, "is no mode of a file", label);
        wrong.help("write `\"0660\"` for the owner and the group, `\"0666\"` for every process")
    })
}

/// Reads an address or address/bits.
pub(in crate::config) fn network(text: &str) -> Result<IpNet, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadNetwork, text, "is not a network", label)
            .help("write `\"10.0.0.0/8\"`, or an address alone as `\"10.0.0.1\"`")
    };
    let network = match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
        (Ok(network), _) => network,
        (_, Ok(address)) => IpNet::from(address),
        _ => {
            let label = match text.split_once('/') {
                Some((address, _)) if address.parse::<IpAddr>().is_ok() => {
                    "the bits after the `/` are 0 to 32 for IPv4, 0 to 128 for IPv6"
                }
                _ => "an address is written in numbers",
            };
            return Err(wrong(label));
        }
    };
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.addr().to_ipv4_mapped()
    {
        let bits = v6.prefix_len().saturating_sub(96);
        return Err(
            wrong("an IPv4 address mapped into IPv6; peers are compared as IPv4")
                .offer([format!("{v4}/{bits}")]),
        );
    }
    Ok(network)
}

/// The ASCII form of a name with non-ASCII letters (UTS 46), if the name has one.
pub(super) fn ascii_form(name: &str) -> Option<String> {
    idna::domain_to_ascii(name)
        .ok()
        .filter(|ascii| !ascii.is_empty())
}

/// Reads a network whose addresses contain IPv4 addresses in their last 32 bits.
pub(in crate::config) fn translator(text: &str) -> Result<Ipv6Net, ValueError> {
    let wrong = |label: &str| {
        let what = "is no network of a translator";
        ValueError::of(Code::BadNetwork, text, what, label)
    };
    let of_form = "a network of IPv6 with 96 bits: the IPv4 address is the rest";
    match network(text)? {
        IpNet::V6(network) if network.prefix_len() == 96 && network.addr() == network.network() => {
            Ok(network)
        }
        IpNet::V6(network) => {
            let fixed = network.addr().to_bits() >> 32 << 32;
            let offer = format!("{}/96", Ipv6Addr::from_bits(fixed));
            Err(wrong(of_form).offer([offer]))
        }
        IpNet::V4(_) => Err(wrong(of_form).help("write `\"2001:db8:64::/96\"`")),
    }
}

/// Reads a host to match: exact, or `*.` in front.
pub(in crate::config) fn host(text: &str) -> Result<HostPattern, ValueError> {
    let wrong = |label: &str| ValueError::of(Code::BadHost, text, "is not a host", label);
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':']).next().unwrap_or(rest);
        return Err(wrong("a host alone, without scheme and path").offer([host]));
    }
    if text == "*" {
        return Err(
            wrong("every host").help("leave `host` out: a route without it is for any host")
        );
    }
    if let Some(rest) = text.strip_prefix('[') {
        let inside = rest.strip_suffix(']');
        let v6 = inside.and_then(|inside| inside.parse::<Ipv6Addr>().ok());
        let v6 = v6.ok_or_else(|| wrong("only an IPv6 address without a port has brackets"))?;
        return Ok(HostPattern::Exact(format!("[{v6}]").into()));
    }
    if let Ok(v6) = text.parse::<Ipv6Addr>() {
        return Err(wrong("an IPv6 address needs brackets").offer([format!("[{v6}]")]));
    }
    if let Some((host, _)) = text.split_once('/') {
        return Err(wrong("a path is not part of a host: it is written as `path`").offer([host]));
    }
    if let Some((host, _)) = text.split_once(':') {
        return Err(wrong("a port is not part of a host: every port matches").offer([host]));
    }
    host_name(text, wrong)
}

/// Reads the name of a host, exact or with `*.` in front.
fn host_name(text: &str, wrong: impl Fn(&str) -> ValueError) -> Result<HostPattern, ValueError> {
    let lower = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let suffix = lower.strip_prefix("*.");
    let name = suffix.unwrap_or(&lower);
    if name.contains('*') {
        let label = "`*` stands for whole labels in front only";
        return Err(wrong(label).help("write `\"*.example.com\"`"));
    }
    if !name.is_ascii() {
        let label = "requests carry such names in their ASCII form";
        return Err(wrong(label)
            .offer(ascii_form(&lower))
            .help("write the `xn--` form of the name"));
    }
    let in_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(in_label);
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(wrong("letters, digits, `-` and `_`, with dots between"));
    }
    Ok(match suffix {
        Some(suffix) => HostPattern::Suffix(format!(".{suffix}").into()),
        None => HostPattern::Exact(name.into()),
    })
}

/// Reads a method. Methods are case-sensitive, and all common methods are in upper case.
pub(in crate::config) fn method(text: &str) -> Result<Method, ValueError> {
    let wrong = |label: &str| ValueError::of(Code::BadMethod, text, "is not a method", label);
    if text == "*" {
        return Err(
            wrong("every method").help("leave `methods` out: a route without it is for any method")
        );
    }
    let upper = text.to_ascii_uppercase();
    if upper == "CONNECT" {
        return Err(wrong(
            "CONNECT asks for a tunnel, and this gateway opens none",
        ));
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if upper == text => Ok(method),
        Ok(_) => Err(wrong("methods are upper case").offer([upper])),
        Err(_) => Err(wrong("a single word is needed")
            .help("write `\"GET\"`, or a list: `[\"GET\", \"POST\"]`")),
    }
}

/// Fields that every client writes for its own purposes: none of them can name a client.
const NEVER_NAMING: [&str; 14] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "origin",
    "referer",
    "transfer-encoding",
    "user-agent",
    "via",
];

/// Reads the field in which proxies name the client: one of the two chains, or a field with one address.
pub(in crate::config) fn naming_field(text: &str) -> Result<NamingField, ValueError> {
    let chains = ["x-forwarded-for", "forwarded"];
    let wrong = |label: &str| ValueError::of(Code::BadField, text, "cannot name clients", label);
    match text.to_ascii_lowercase().as_str() {
        "x-forwarded-for" => return Ok(NamingField::Chain(Field::XForwardedFor)),
        "forwarded" => return Ok(NamingField::Chain(Field::Forwarded)),
        _ => {}
    }
    // A word that is similar to one of the two would be a field that no proxy writes.
    let similar = nearest(text, chains).filter(|word| word.len().abs_diff(text.len()) <= 1);
    if let Some(word) = similar {
        return Err(wrong("nearly the name of another field").offer([word]));
    }
    let name = text.parse::<HeaderName>().ok();
    let name = name
        .filter(|name| !text.contains(['_', '"', '*']) && !NEVER_NAMING.contains(&name.as_str()));
    name.map(NamingField::Single).ok_or_else(|| {
        wrong("a field in which a proxy writes the client's address").help(
            "write `\"x-forwarded-for\"`, or a field with one address, as `\"cf-connecting-ip\"`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::with_valid_offers;

    #[test]
    fn fields_that_name_clients() {
        let chain = naming_field("Forwarded").unwrap();
        assert_eq!(chain, NamingField::Chain(Field::Forwarded));
        for text in [
            "cf-connecting-ip",
            "True-Client-IP",
            "x-real-ip",
            "x-vercel-forwarded-for",
        ] {
            let found = naming_field(text).unwrap();
            assert_eq!(found.name(), text.to_ascii_lowercase());
        }
        let help = |text| naming_field(text).unwrap_err().shown_help().unwrap();
        assert_eq!(help("x-forwarded-fro"), "write `\"x-forwarded-for\"`");
        for text in ["", "a b", "x_real_ip", "host", "cookie", "x-*"] {
            assert!(naming_field(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses() {
        for (text, read) in [
            (":8080", "0.0.0.0:8080"),
            ("*:80", "0.0.0.0:80"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("localhost:80", "127.0.0.1:80"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), read);
        }
        for text in [
            "",
            "8080",
            "::1",
            "::1:80",
            "example.com:80",
            "1.2.3.4",
            ":99999",
            "http://:80",
            "unix:/x",
            "[::1]",
        ] {
            assert!(address(text).is_err(), "{text}");
        }
        assert_eq!(
            with_valid_offers("8080", address)
                .unwrap_err()
                .shown_help()
                .unwrap(),
            "write `\":8080\"`"
        );
    }

    #[test]
    fn a_port_alone_is_every_address_and_for_the_admin_those_of_ipv4() {
        let every = ListenAddress::EveryAddress(80);
        assert_eq!(listen_address(":80").unwrap(), every);
        assert_eq!(listen_address("*:80").unwrap(), every);
        let ipv4 = ListenAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], 80)));
        assert_eq!(listen_address("0.0.0.0:80").unwrap(), ipv4);
        assert_eq!(admin_address(":80").unwrap(), ipv4);
    }

    #[test]
    fn networks() {
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "proxy",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(network(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts() {
        assert_eq!(
            host("API.Example.com.").unwrap(),
            HostPattern::Exact("api.example.com".into())
        );
        assert_eq!(
            host("*.example.com").unwrap(),
            HostPattern::Suffix(".example.com".into())
        );
        assert_eq!(host("[::1]").unwrap(), HostPattern::Exact("[::1]".into()));
        assert!(host("127.0.0.1").is_ok() && host("localhost").is_ok());
        let offer = with_valid_offers("*.Bücher.de", host)
            .unwrap_err()
            .shown_help()
            .unwrap();
        assert_eq!(offer, "write `\"*.xn--bcher-kva.de\"`");
        for text in [
            "",
            "*",
            "a..b",
            "a:80",
            "http://a",
            "a/b",
            "a.*.b",
            "*a.b",
            "bücher.de",
            "::1",
            "[::1]:80",
            "a b",
            "*.",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn methods() {
        assert_eq!(method("GET").unwrap(), Method::GET);
        assert!(method("PURGE").is_ok());
        for text in ["get", "", "*", "GET,POST", "CONNECT"] {
            assert!(method(text).is_err(), "{text}");
        }
    }
}
