//! Which texts of a file are starred, and which stay.

use super::starred;

#[test]
fn names_of_variables_say_what_is_secret() {
    for name in [
        "DB_PW",
        "CRED",
        "AWS_CREDS",
        "x_credential",
        "CREDENTIALS",
        "PRIVATE",
        "HOOK_HMAC",
        "SALT_1",
        "GITHUB_PAT",
        "TOTP",
        "DSN",
        "SLACK_TOKEN",
        "DBPASS",
        "API_KEY",
    ] {
        assert!(super::is_secret_variable(name), "{name}");
    }
    for name in [
        "PATH",
        "HOST",
        "PWN",
        "SALTY",
        "RATE",
        "ACCREDITED",
        "UPDATE",
        "DATABASE_URL",
        "API_KEY_HEADER",
    ] {
        assert!(!super::is_secret_variable(name), "{name}");
    }
}

/// The list on one line may have any length.
#[test]
fn queries_far_behind_their_key_are_starred() {
    let others = "\"https://id.example/keys\", ".repeat(1000);
    let text = |query: &str| format!("jwks = [{others}\"https://i/k?{query}\"]");
    assert_eq!(starred(&text("key=1")), text("*****"));
}

#[test]
fn credentials_are_starred_and_nothing_moves() {
    for (text, shown) in [
        ("password = \"hunter2\" # x", "password = \"*******\" # x"),
        ("pasword='hunter2'", "pasword='*******'"),
        ("password = \"hun\\\"ter", "password = \"********"),
        ("password = hunter2\nx = 1", "password = *******\nx = 1"),
        ("url = \"redis://u:p@h:1/0\"", "url = \"redis://***@h:1/0\""),
        (
            "password = { env = \"NAME\" }",
            "password = { env = \"NAME\" }",
        ),
        (
            "password = { value = \"pw\", env = \"E\" }",
            "password = { value = \"**\", env = \"E\" }",
        ),
        (
            "{ token={fiel='pw'}, x = 1 }",
            "{ token={fiel='**'}, x = 1 }",
        ),
        ("password = { value = pw", "password = { value = **"),
        ("url = \"redis://:pw\"", "url = \"redis://:**\""),
        ("password = \"\"\"a\nb\"\"\"", "password = \"\"\"*\n*\"\"\""),
        (
            "set = { authorization = \"Bearer x\", a = \"b\" }",
            "set = { authorization = \"********\", a = \"b\" }",
        ),
        ("{ x-api-key = true }", "{ x-api-key = true }"),
        ("servers = \"u:pw@h:1\"", "servers = \"****@h:1\""),
        (
            "jwks = [\"https://i/k?key=1\", 'https://u:p@i/k?a=b']",
            "jwks = [\"https://i/k?*****\", 'https://***@i/k?***']",
        ),
        ("  \"https://i/k?key=1\",", "  \"https://i/k?*****\","),
        ("to = \"https://i/k?key=1\"", "to = \"https://i/k?key=1\""),
        (
            "servers = [\"http://h:1/?key=1\", { url = \"h2c://h?k\" }]",
            "servers = [\"http://h:1/?*****\", { url = \"h2c://h?*\" }]",
        ),
        (
            "x = \"\"\"\nhttps://i/k?key=1\"\"\"",
            "x = \"\"\"\nhttps://i/k?*****\"\"\"",
        ),
        ("listen = \"unix:@front\"", "listen = \"unix:@front\""),
        ("a = \"unix:pw@front\"", "a = \"*******@front\""),
        ("at = \"a@b\" # c:d@e", "at = \"a@b\" # c:d@e"),
        (
            "members = [\"k1\", # x\n 'k\\2',\"10.0.0.0/8\"]\nby = \"ip\"",
            "members = [\"**\", # x\n '***',\"10.0.0.0/8\"]\nby = \"ip\"",
        ),
        (
            "customers = { acme = [\"k1\", 'k2'], \"a b\" = \"k3\" }\nby = \"host\"",
            "customers = { acme = [\"**\", '**'], \"a b\" = \"**\" }\nby = \"host\"",
        ),
        (
            "customers.acme = [\n \"k]1\",\n \"k\\\"2\" ]\ncustomers = \"keys.txt\"",
            "customers.acme = [\n \"***\",\n \"****\" ]\ncustomers = \"keys.txt\"",
        ),
        (
            "pro = { by = \"host\", customers = { acme = \"k1\" } }",
            "pro = { by = \"host\", customers = { acme = \"**\" } }",
        ),
        (
            "[groups.pro.customers]\nacme = \"k1\"\n\"a=b\" = 'k2'\n[log]\nlevel = \"info\"",
            "[groups.pro.customers]\nacme = \"**\"\n\"a=b\" = '**'\n[log]\nlevel = \"info\"",
        ),
        (
            "members = \"key\"\nx = \"y\"",
            "members = \"***\"\nx = \"y\"",
        ),
        (
            "[store.password]\nfiel = \"hunter2\"\nfile = \"f\"\n[log]\nlevel = \"info\"",
            "[store.password]\nfiel = \"*******\"\nfile = \"f\"\n[log]\nlevel = \"info\"",
        ),
        (
            "[limits.per-token]\nby = \"ip\"",
            "[limits.per-token]\nby = \"ip\"",
        ),
        (
            "path = \"/${DB_PW:-hook}/${PATH:-x}\"",
            "path = \"/${DB_PW:-****}/${PATH:-x}\"",
        ),
        ("é.password = \"é\"", "é.password = \"**\""),
        (
            "algorithm = \"token-bucket\"",
            "algorithm = \"token-bucket\"",
        ),
    ] {
        assert_eq!(starred(text), shown);
        assert_eq!(starred(text).len(), text.len());
    }
}
