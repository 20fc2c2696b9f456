//! Files of TLS by their paths, and the names that an identity serves.

use super::net::ascii_form;
use super::{Code, ValueError};
use crate::tls::ServedName;

/// Reads the path of a PEM file. The content of such a file is refused, and not repeated: it may be a private key.
pub(in crate::config) fn pem_path(text: &str) -> Result<String, ValueError> {
    if text.contains("-----BEGIN") || text.contains('\n') {
        let wrong = ValueError::new(
            Code::CertificateUnreadable,
            "this is the contents of a file, and not its path",
            "a path of a PEM file",
        );
        return Err(wrong.help("put them into a file of their own, and write its path"));
    }
    Ok(text.to_owned())
}

/// Reads `cert.pem,key.pem`: the paths of a certificate and of its key.
pub(in crate::config) fn pem_pair(text: &str) -> Result<[String; 2], ValueError> {
    let pair = text
        .split_once(',')
        .filter(|(cert, key)| !cert.is_empty() && !key.is_empty() && !key.contains(','));
    let Some((cert, key)) = pair else {
        let wrong = ValueError::new(
            Code::CertificateUnreadable,
            "these are not the files of a certificate and of its key",
            "two paths with a comma between",
        );
        return Err(wrong.help("write `--tls cert.pem,key.pem`"));
    };
    Ok([pem_path(cert)?, pem_path(key)?])
}

/// Reads a host that an identity serves: exact, or `*.` for one leading label.
pub(in crate::config) fn served_name(text: &str) -> Result<ServedName, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(
            Code::BadHost,
            text,
            "is not a host that a client can ask for by TLS",
            label,
        )
    };
    if let Some(name) = ServedName::read(text) {
        return Ok(name);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':']).next().unwrap_or(rest);
        return Err(wrong("a host alone, without scheme and path").offer([host]));
    }
    if text.parse::<std::net::IpAddr>().is_ok() || text.starts_with('[') {
        let label = "clients name no address in a handshake";
        return Err(wrong(label).help(
            "leave it out: `default = true` is for clients that name no host, and so for those that ask for an address; its certificate must be in files (`cert`, `key`), since this version orders none for addresses",
        ));
    }
    if let Some((host, _)) = text.split_once([':', '/']) {
        return Err(wrong("a host has neither port nor path").offer([host]));
    }
    if !text.is_ascii() {
        let label = "clients ask for such names in their ASCII form";
        return Err(wrong(label)
            .offer(ascii_form(text))
            .help("write the `xn--` form of the name"));
    }
    if text.contains('*') {
        let label = "`*.` stands for one whole label in front";
        return Err(wrong(label).help("write `\"*.example.com\"`"));
    }
    Err(wrong("letters, digits and `-`, with dots between"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::with_valid_offers;

    #[test]
    fn a_host_is_a_name_and_not_an_address() {
        for (text, read) in [
            ("API.example.com.", "api.example.com"),
            ("*.example.com", "*.example.com"),
        ] {
            assert_eq!(served_name(text).unwrap().as_str(), read);
        }
        for (text, offer) in [
            ("https://a.example/x", Some("a.example")),
            ("a.example:443", Some("a.example")),
            ("192.0.2.1", None),
            ("[::1]", None),
            ("*", None),
            ("a*.example", None),
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("a..b", None),
        ] {
            let wrong = with_valid_offers(text, served_name).unwrap_err();
            assert_eq!(wrong.offers.first().map(String::as_str), offer, "{text}");
        }
    }

    #[test]
    fn the_contents_of_a_key_are_not_repeated() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----\n";
        let shown = format!("{:?}", pem_path(key).unwrap_err());
        assert!(!shown.contains("MIGH"), "{shown}");
        assert_eq!(pem_path("api.pem").unwrap(), "api.pem");
    }
}
