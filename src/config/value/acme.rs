//! Addresses of certification authorities: the URL of a directory, and the mail address for messages from the
//! authority.

use super::{Code, ValueError};
use crate::acme::{PUBLIC_DIRECTORY, STAGING_DIRECTORY};
use crate::telemetry::shown_url;
use http::Uri;

/// Words for the directories of the largest public authority.
const WORDS: [(&str, &str); 2] = [
    ("production", PUBLIC_DIRECTORY),
    ("staging", STAGING_DIRECTORY),
];

/// Reads the URL of a directory, or a word that stands for a URL.
pub(in crate::config) fn directory(text: &str) -> Result<String, ValueError> {
    let mut words = WORDS.iter();
    if let Some((_, url)) = words.find(|(word, _)| *word == text) {
        return Ok((*url).to_owned());
    }
    let wrong = |label: &str| {
        ValueError::of(
            Code::BadUrl,
            &shown_url(text),
            "is not the URL of a directory",
            label,
        )
    };
    let help = "write the URL of the authority's directory, `\"production\"` or `\"staging\"`";
    let Ok(url) = text.parse::<Uri>() else {
        return Err(wrong("no URL").help(help));
    };
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err(wrong("an `https` URL is needed here").help(help));
    };
    if scheme != "https" {
        let wrong = wrong("authorities are reached only by TLS");
        // The query may be a secret.
        return Err(match url.query() {
            None => wrong.offer([text.replacen(scheme, "https", 1)]),
            Some(_) => wrong.help("write `https://` in front"),
        });
    }
    if authority.as_str().contains('@') {
        return Err(wrong("it cannot have a user").help("an account is named by `eab`"));
    }
    Ok(text.to_owned())
}

/// Reads a mail address.
pub(in crate::config) fn mail_address(text: &str) -> Result<String, ValueError> {
    let wrong = |label: &str| ValueError::of(Code::BadUrl, text, "is not a mail address", label);
    if let Some(address) = text.strip_prefix("mailto:") {
        return Err(wrong("the address alone").offer([address]));
    }
    let is_good = |part: &str| {
        let is_plain = |one: char| one.is_ascii_graphic() && !"@,;?<>\"()".contains(one);
        !part.is_empty() && part.chars().all(is_plain)
    };
    match text.split_once('@') {
        Some((name, host)) if is_good(name) && is_good(host) => Ok(text.to_owned()),
        _ => Err(wrong("one address, as `ops@example.com`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_an_https_url_or_a_word() {
        assert_eq!(directory("production").unwrap(), PUBLIC_DIRECTORY);
        assert_eq!(directory("staging").unwrap(), STAGING_DIRECTORY);
        let url = "https://localhost:14000/dir";
        assert_eq!(directory(url).unwrap(), url);
        for wrong in [
            "",
            "letsencrypt",
            "http://ca/dir",
            "https://",
            "/dir",
            "https://u@ca/",
            "ca",
        ] {
            assert!(directory(wrong).is_err(), "{wrong}");
        }
        assert!(mail_address("ops@example.com").is_ok());
        for wrong in [
            "",
            "ops",
            "@a",
            "a@",
            "a@b@c",
            "mailto:a@b.c",
            "a@b, c@d",
            "a b@c",
        ] {
            assert!(mail_address(wrong).is_err(), "{wrong}");
        }
    }
}
