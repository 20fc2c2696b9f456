//! Tokens: trusted only with a correct signature, and read in no other spelling.

use super::*;
use http::HeaderValue;
use jsonwebtoken::{DecodingKey, EncodingKey, Validation, encode};
use serde_json::json;

const SECRET: &[u8] = b"a shared secret of more than 32 bytes";

fn verifier(header: HeaderName, change: impl FnOnce(&mut Validation)) -> Verifier {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.required_spec_claims.clear();
    validation.validate_nbf = true;
    validation.validate_aud = false;
    validation.leeway = 0;
    change(&mut validation);
    let key = TokenKey {
        id: None,
        key: DecodingKey::from_secret(SECRET),
        validation,
    };
    Verifier::new(header, vec![key], Vec::new())
}

fn signed(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
    let key = EncodingKey::from_secret(secret);
    encode(&Header::new(algorithm), claims, &key).unwrap()
}

fn bearer(token: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("bearer  {token}")).unwrap();
    fields.insert(header::AUTHORIZATION, value);
    fields
}

#[test]
fn only_what_is_signed_as_it_must_be_claims_anything() {
    let verifier = verifier(header::AUTHORIZATION, |_| ());
    let claims = json!({ "sub": "ann" });
    let good = signed(Algorithm::HS256, SECRET, &claims);
    assert!(verifier.claims(&bearer(&good)).is_ok());
    let (head, rest) = good.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let other = signed(
        Algorithm::HS256,
        b"another secret",
        &json!({ "sub": "eve" }),
    );
    let none = "eyJhbGciOiJub25lIn0";
    let stolen = other.split('.').nth(1).unwrap();
    for (token, why) in [
        (other.clone(), TokenDoubt::Untrusted),
        (
            signed(Algorithm::HS384, SECRET, &claims),
            TokenDoubt::Algorithm,
        ),
        (
            format!("{head}.{stolen}.{signature}"),
            TokenDoubt::Untrusted,
        ),
        (format!("{head}.{body}."), TokenDoubt::Untrusted),
        (format!("{none}.{body}."), TokenDoubt::Algorithm),
        (format!("{none}.{body}.{signature}"), TokenDoubt::Algorithm),
        (format!("{head}.{body}"), TokenDoubt::Malformed),
        ("x".repeat(LONGEST + 1), TokenDoubt::Malformed),
        (String::new(), TokenDoubt::Absent),
        (
            signed(Algorithm::HS256, SECRET, &json!({ "sub": ["ann"] })),
            TokenDoubt::ClaimForm,
        ),
        (
            signed(Algorithm::HS256, SECRET, &json!({ "sub": { "of": "ann" } })),
            TokenDoubt::ClaimForm,
        ),
    ] {
        assert_eq!(verifier.claims(&bearer(&token)), Err(why), "{token:.80}");
    }
    let mut twice = bearer(&good);
    twice.append(header::AUTHORIZATION, twice[header::AUTHORIZATION].clone());
    assert!(verifier.claims(&twice).is_ok());
    assert!(!Token::new(Some(&verifier), &twice).is_ambiguous());
    twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    assert_eq!(verifier.claims(&twice), Err(TokenDoubt::Absent));
    assert!(Token::new(Some(&verifier), &twice).is_ambiguous());
    let mut basic = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Basic {good}")).unwrap();
    basic.insert(header::AUTHORIZATION, value);
    assert_eq!(verifier.claims(&basic), Err(TokenDoubt::Misspelt));
}

/// Another reader may read a spelling that this gateway does not.
#[test]
fn a_token_that_is_spelled_otherwise_is_not_believed_and_not_absent() {
    let verifier = verifier(header::AUTHORIZATION, |_| ());
    let good = signed(Algorithm::HS256, SECRET, &json!({ "sub": "ann" }));
    let claims = |value: &str| {
        let mut fields = HeaderMap::new();
        fields.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        verifier.claims(&fields).map(|_| ())
    };
    for same in [
        format!("Bearer {good}"),
        format!("Bearer\t{good}"),
        format!("BEARER \t {good}"),
    ] {
        assert_eq!(claims(&same), Ok(()), "{same:.20}");
    }
    for misspelt in [
        format!("Bearer {good}=="),
        format!("Bearer {good}, Basic x"),
        format!("Basic x, Bearer {good}"),
        format!("Bearer \"{good}\""),
        format!("\"Bearer {good}\""),
        format!("Bearer:{good}"),
        format!("Bearer{good}"),
        format!("Bearer {good} {good}"),
        format!("JWT {good}"),
        format!("Basic {good}"),
        format!("token={good}"),
        good.clone(),
    ] {
        assert_eq!(
            claims(&misspelt),
            Err(TokenDoubt::Misspelt),
            "{misspelt:.20}"
        );
    }
    for absent in ["", "Basic x", "Bearer", "Bearer ", "JWT eyJh.eyJz"] {
        assert_eq!(claims(absent), Err(TokenDoubt::Absent), "{absent:.20}");
    }
}

#[test]
fn time_issuer_and_audience_are_held_against_the_file() {
    let now = jsonwebtoken::get_current_timestamp();
    let verifier = verifier(HeaderName::from_static("x-token"), |validation| {
        validation.set_issuer(&["https://id.example.com"]);
        validation.set_audience(&["api"]);
        validation.validate_aud = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    });
    let whole = json!({ "iss": "https://id.example.com", "aud": ["web", "api"], "exp": now + 60, "nbf": now - 60 });
    let verdict = |change: Value| {
        let mut claims = whole.as_object().unwrap().clone();
        for (name, value) in change.as_object().unwrap() {
            claims.insert(name.clone(), value.clone());
        }
        let mut fields = HeaderMap::new();
        let token = signed(Algorithm::HS256, SECRET, &claims.into());
        let value = HeaderValue::from_str(&token).unwrap();
        fields.insert("x-token", value);
        verifier.claims(&fields).map(|_| ())
    };
    assert_eq!(verdict(json!({})), Ok(()));
    for (change, why) in [
        (json!({ "exp": now - 2 }), TokenDoubt::Expired),
        (json!({ "exp": "soon" }), TokenDoubt::Endless),
        (json!({ "nbf": now + 60 }), TokenDoubt::TooEarly),
        (
            json!({ "iss": "https://evil.example.com" }),
            TokenDoubt::Foreign,
        ),
        (json!({ "iss": null }), TokenDoubt::Foreign),
        (json!({ "aud": "web" }), TokenDoubt::Foreign),
        (json!({ "aud": null }), TokenDoubt::Foreign),
        (json!({ "exp": null }), TokenDoubt::Endless),
    ] {
        assert_eq!(verdict(change.clone()), Err(why), "{change}");
    }
}

#[test]
fn lists_and_scopes_have_entries_and_other_texts_have_none() {
    let verifier = verifier(header::AUTHORIZATION, |_| ());
    let claims = json!({
        "roles": ["gold", 7, "", ["inner"], null, { "a": 1 }, true], "aud": "web api", "none": [],
        "realm": { "roles": ["a b"] }, "scope": "read  write", "scp": ["x"], "name": "gold digger",
        "inner": { "scope": "read write" },
    });
    let fields = bearer(&signed(Algorithm::HS256, SECRET, &claims));
    let token = Token::new(Some(&verifier), &fields);
    for (name, entries) in [
        ("roles", &["gold", "7", ""][..]),
        ("realm.roles", &["a b"]),
        ("scope", &["read", "write"]),
        ("scp", &["x"]),
        ("none", &[]),
        ("aud", &[]),
        ("name", &[]),
        ("inner.scope", &[]),
        ("nobody", &[]),
    ] {
        let mut found = Vec::new();
        token.listed(name, &mut |entry| found.push(entry.to_owned()));
        assert_eq!(found, entries, "{name}");
    }
    assert_eq!(token.claim("roles"), None, "a list is no key");
    assert_eq!(token.claim("scope").as_deref(), Some("read  write"));
}

#[test]
fn claims_are_texts_and_numbers_and_dots_lead_into_tables() {
    let verifier = verifier(header::AUTHORIZATION, |_| ());
    let claims = json!({
        "sub": "ann", "n": 7, "empty": "", "yes": true, "list": ["a"], "none": null,
        "realm": { "tenant": { "id": "t1" } }, "a.b": "whole", "a": { "b": "inner" },
        "https://example.com/tenant": "t2",
    });
    let fields = bearer(&signed(Algorithm::HS256, SECRET, &claims));
    let token = Token::new(Some(&verifier), &fields);
    for (name, value) in [
        ("sub", Some("ann")),
        ("n", Some("7")),
        ("realm.tenant.id", Some("t1")),
        ("a.b", Some("whole")),
        ("https://example.com/tenant", Some("t2")),
        ("empty", None),
        ("yes", None),
        ("list", None),
        ("none", None),
        ("realm.tenant", None),
        ("realm.tenant.id.x", None),
        ("nobody", None),
    ] {
        assert_eq!(token.claim(name).as_deref(), value, "{name}");
    }
    assert_eq!(Token::new(None, &fields).claim("sub"), None);
    Token::new(None, &fields).listed("list", &mut |entry| panic!("{entry}"));
    let nothing = HeaderMap::new();
    let token = Token::new(Some(&verifier), &nothing);
    assert_eq!((token.why_not(), token.claim("sub")), (None, None));
    assert_eq!(token.why_not(), Some(TokenDoubt::Absent));
    assert!(!format!("{verifier:?} {token:?}").contains("secret"));
}

/// A forged token costs four signature checks at most, and names decide which.
#[test]
fn few_keys_are_tried() {
    let mut one = verifier(header::AUTHORIZATION, |_| ());
    let validation = one.keys.remove(0).validation;
    let secret = |number: usize| format!("secret number {number}, of more than 32 bytes");
    let key = |number: usize, id: Option<&str>| TokenKey {
        id: id.map(str::to_owned),
        key: DecodingKey::from_secret(secret(number).as_bytes()),
        validation: validation.clone(),
    };
    let keys = vec![
        key(0, Some("a")),
        key(1, None),
        key(2, None),
        key(3, Some("b")),
        key(4, None),
        key(5, Some("c")),
        key(6, Some("a")),
    ];
    let verifier = Verifier::new(header::AUTHORIZATION, keys, Vec::new());
    let tried = |kid: Option<&str>| {
        let mut head = Header::new(Algorithm::HS256);
        head.kid = kid.map(str::to_owned);
        let accepted = |number: &usize| {
            let key = EncodingKey::from_secret(secret(*number).as_bytes());
            let token = encode(&head, &json!({ "sub": "ann" }), &key).unwrap();
            verifier.claims(&bearer(&token)).is_ok()
        };
        (0..7).filter(accepted).collect::<Vec<_>>()
    };
    assert_eq!(tried(None), [0, 1, 2, 4]);
    assert_eq!(tried(Some("a")), [0, 6]);
    assert_eq!(tried(Some("c")), [5]);
    assert_eq!(tried(Some("nobody")), [1, 2, 4]);
}
