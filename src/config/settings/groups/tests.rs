//! Groups of a file: their members in the list and in files, and their mistakes.

use super::*;

#[test]
fn blanks_around_a_member_count_where_a_value_has_them() {
    let secret = true;
    let claim = KeyPart::Jwt {
        claim: "plan".into(),
        secret,
    };
    let query = KeyPart::Query {
        name: "k".into(),
        secret,
    };
    for by in [
        claim,
        query,
        KeyPart::Cookie("c".into()),
        KeyPart::Path("p".into()),
    ] {
        assert_eq!(as_listed(b" a ", Some(&by)), b" a ", "{by}");
        assert_eq!(as_listed(b" sha256:1 ", Some(&by)), b"sha256:1", "{by}");
        let member = one_value(as_listed(b" a", Some(&by)), &by).unwrap();
        assert_eq!(member, Group::digest(b" a"), "{by}");
    }
    let field = KeyPart::Header {
        name: http::HeaderName::from_static("x-key"),
        secret,
    };
    for by in [field, KeyPart::Host] {
        assert_eq!(as_listed(b" a ", Some(&by)), b"a", "{by}");
    }
}

#[test]
fn a_fingerprint_has_many_spellings() {
    let plain = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let colons: Vec<String> = plain
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8(pair.to_vec()).unwrap())
        .collect();
    let colons = colons.join(":").to_uppercase();
    for text in [
        plain,
        &colons,
        &format!("sha256:{plain}"),
        &format!("SHA256:{colons}"),
    ] {
        let member = one_value(text.as_bytes(), &KeyPart::TlsFingerprint);
        assert_eq!(member, Ok(Group::digest(plain.as_bytes())), "{text}");
    }
    for wrong in ["", "ab", &plain[1..], &format!("{plain}0"), "CN=anna"] {
        assert!(
            one_value(wrong.as_bytes(), &KeyPart::TlsFingerprint).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn a_user_with_a_password_is_a_digest() {
    let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let member = one_value(digest.as_bytes(), &KeyPart::Basic);
    assert_eq!(member, Ok(Group::digest(b"abc")));
    for wrong in ["anna:secret", &digest[7..], "sha256:ba78"] {
        let why = one_value(wrong.as_bytes(), &KeyPart::Basic).unwrap_err();
        assert!(
            why.contains("sha256sum") && !why.contains("secret"),
            "{why}"
        );
    }
}

#[test]
fn a_subject_has_one_spelling_among_members() {
    let member = |text: &str| one_value(text.as_bytes(), &KeyPart::TlsSubject);
    for text in ["CN=Jürg,O=House", "cn=J\\C3\\BCrg,o=House"] {
        assert_eq!(
            member(text),
            Ok(Group::digest("CN=Jürg,O=House".as_bytes()))
        );
    }
    for wrong in ["anna", "O = House, CN = anna", "/CN=anna"] {
        assert!(
            member(wrong).unwrap_err().contains("-nameopt RFC2253"),
            "{wrong}"
        );
    }
}

#[test]
fn a_member_and_its_digest_are_the_same() {
    let by = KeyPart::Cookie("c".into());
    let plain = one_value(b"abc", &by).unwrap();
    let sum = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015ad";
    assert_eq!(
        one_value(format!("sha256:{sum}").as_bytes(), &by).unwrap(),
        plain
    );
    for wrong in [
        "sha256:",
        "sha256:12",
        &format!("sha256:{sum}0"),
        &format!("sha256:x{}", &sum[1..]),
    ] {
        assert!(one_value(wrong.as_bytes(), &by).is_err(), "{wrong}");
    }
    assert_eq!(
        one_value(b"A.b", &KeyPart::Host).unwrap(),
        Group::digest(b"a.b")
    );
}

#[test]
fn a_customers_network_with_bits_behind_its_prefix_is_a_warning() {
    let text = "[groups.office]\nby = \"ip\"\ncustomers = { acme = \"10.0.0.1/8\", beta = \"192.0.2.0/24\" }\n\
                [limits.a]\nby = \"customer\"\nmissing = \"ip\"\nrate = \"1/s\"\n\
                [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"a\"\n";
    let report = crate::config::parse("gateway.toml", text).unwrap().report();
    let warnings: Vec<&str> = report
        .diagnostics
        .iter()
        .filter(|one| one.code == Code::HostBits)
        .map(|one| one.message.as_str())
        .collect();
    assert_eq!(warnings, ["10.0.0.1/8 is more than one address"]);
}

const REST: &str =
    "[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"day\"\n";

/// The codes and messages about a file in a folder with these other files.
fn said(text: &str, files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, format!("{text}{REST}")).unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let report = crate::config::load(&path).map_or_else(|report| report, |good| good.report());
    let said = report.diagnostics.iter();
    said.map(|one| format!("{}: {}", one.code, one.message))
        .collect()
}

const PLANS: &str = "[groups.pro]\nby = \"header:x-api-key\"\ncustomers = \"keys.txt\"\n\
    [groups.gold]\nby = \"customer\"\nfile = \"gold.txt\"\n\
    [limits.day]\nby = \"customer\"\nmissing = \"refuse\"\nrate = \"100/d\"\n\
    tiers.gold = { rate = \"1000/d\", burst = 50 }\nown = \"own.txt\"\n";

#[test]
fn a_name_of_a_plan_without_a_credential_is_unknown_everywhere() {
    let files = [
        ("keys.txt", "acme key-1\n"),
        ("gold.txt", "acme\nlost\n"),
        ("own.txt", "acme 5/d\nlost 7/d\n"),
    ];
    assert_eq!(
        said(PLANS, &files),
        [
            "unknown-customer: gold.txt:2: no group names the customer `lost` of group `gold`",
            "unknown-customer: own.txt:2: no group names the customer `lost`",
        ]
    );
}

#[test]
fn customers_that_cannot_be_read_are_not_taken_for_none() {
    let own = ("own.txt", "acme 5/d\n");
    let files = [("gold.txt", "acme\n"), own];
    let alone = PLANS.replace(
        "[groups.gold]\nby = \"customer\"\nfile = \"gold.txt\"\n",
        "",
    );
    let alone = alone.replace("tiers.gold = { rate = \"1000/d\", burst = 50 }\n", "");
    let found = said(&alone, &files);
    assert!(
        found.len() == 1 && found[0].starts_with("unreadable: "),
        "{found:?}"
    );
    let found = said(PLANS, &files);
    assert!(
        found.len() == 1 && found[0].starts_with("unreadable: "),
        "{found:?}"
    );
    let files = [
        ("keys.txt", "acme\nbeta key-2\n"),
        ("gold.txt", "acme\n"),
        own,
    ];
    let found = said(PLANS, &files);
    assert!(
        found.len() == 1 && found[0].starts_with("bad-customer: keys.txt:1 "),
        "{found:?}"
    );
}

/// The numbers of the first line are right for its customer, who has no plan.
#[test]
fn a_mistake_in_numbers_names_a_customer_who_meets_it() {
    let text = PLANS.replace("rate = \"100/d\"", "rate = \"1000/s\"");
    let text = text.replace(
        "rate = \"1000/d\", burst = 50",
        "rate = \"1/30d\", burst = 2",
    );
    let files = [
        ("keys.txt", "acme key-1\nbeta key-2\n"),
        ("gold.txt", "beta\n"),
        (
            "own.txt",
            "# NAME NUMBERS\nacme burst=4000000000\nbeta burst=4000000000\n",
        ),
    ];
    let found = said(&text, &files);
    assert!(
        found.len() == 1 && found[0].contains("own.txt:3: customer `beta`: "),
        "{found:?}"
    );
}
