//! The fault of a file that has no item of the expected kind. Most such files have the right item in another form: a
//! key with a passphrase, or DER, as authorities deliver.

/// The reason why no certificate is found in a file.
pub(super) fn of_certificates(file: &[u8]) -> String {
    missing(file, "`-----BEGIN CERTIFICATE-----`", "x509")
}

/// The reason why no revocation list is found in a file.
pub(super) fn of_lists(file: &[u8]) -> String {
    missing(file, "`-----BEGIN X509 CRL-----`", "crl")
}

/// The reason why no private key is found in a file.
pub(super) fn of_key(file: &[u8]) -> String {
    if has_passphrase(file) {
        return "it has a passphrase: `openssl pkey -in FILE -out NEW` writes it without one"
            .into();
    }
    missing(file, "`-----BEGIN PRIVATE KEY-----`", "pkey")
}

fn missing(file: &[u8], beginning: &str, command: &str) -> String {
    if is_der(file) {
        format!(
            "it is no PEM file, but DER: `openssl {command} -inform der -in FILE -out NEW` writes it as PEM"
        )
    } else {
        format!("it has no {beginning}")
    }
}

/// Is it an encrypted private key, in PKCS #8 or in OpenSSL's older form?
fn has_passphrase(file: &[u8]) -> bool {
    let begins_so = |line: &[u8]| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
            || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
    };
    file.split(|byte| *byte == b'\n').any(begins_so)
}

/// Does it begin like a long DER sequence? No text begins like that.
fn is_der(file: &[u8]) -> bool {
    matches!(file, [0x30, 0x81..=0x84, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_fit_the_file() {
        let der = b"\x30\x82\x01\x0a\x30\x0b";
        for (file, certificate, key, list) in [
            (
                &b"hello"[..],
                "it has no `-----BEGIN CERT",
                "it has no `-----BEGIN PRIV",
                "it has no `-----BEGIN X509",
            ),
            (
                der,
                "openssl x509 -inform der",
                "openssl pkey -inform der",
                "openssl crl -inform der",
            ),
            (
                b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nabc",
                "it has no",
                "it has a passphrase",
                "it has no",
            ),
            (
                b"x\n-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n",
                "it has no",
                "it has a passphrase",
                "it has no",
            ),
        ] {
            let said = of_certificates(file);
            assert!(said.contains(certificate), "{said}");
            let said = of_key(file);
            assert!(said.contains(key), "{said}");
            let said = of_lists(file);
            assert!(said.contains(list), "{said}");
        }
    }
}
