//! Every file that the repository ships, and every file that its pages print, is valid.

use super::cli::{check, repository};
use crate::support::tollgate;
use std::path::PathBuf;

/// Every page of the repository.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![repository().to_path_buf()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
            if entry.file_type().unwrap().is_dir() && is_ours {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn files_in(folder: &str, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(repository().join(folder)) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|own| own == extension))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_file_that_we_ship_is_good() {
    let mut files = files_in("deploy", "toml");
    assert!(!files.is_empty());
    files.push(repository().join("gateway.toml"));
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        if text.contains(CERTIFICATES) {
            // The certificates of this file exist only on the machine that it is for.
            let done = check(&with_its_files(text)).await;
            assert_eq!(done.code, Some(0), "{}: {done:?}", file.display());
            continue;
        }
        let done = tollgate(repository(), &["check".as_ref(), file.as_os_str()]).await;
        assert_eq!(done.code, Some(0), "{}: {done:?}", file.display());
    }
}

/// The TOML blocks of a page. A block without an upstream is an excerpt, and is completed to a whole file.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(fence) = lines.find(|line| line.trim_start().starts_with("```")) {
        let block: Vec<&str> = lines
            .by_ref()
            .take_while(|line| line.trim() != "```")
            .collect();
        if fence.trim_start().starts_with("```toml") {
            blocks.push(block.join("\n") + "\n");
        }
    }
    for block in &mut blocks {
        // The tables of a whole file may stand in dotted keys.
        let is_whole = block.contains("[routes.") || block.contains("\nroutes.");
        if !is_whole {
            *block += "[upstreams.x]\nservers = \"demo:\"\n[routes.x]\nupstream = \"x\"\n";
        }
    }
    blocks
}

/// The beginning of a value that names a certificate or its key.
const CERTIFICATES: &str = "\"tls/";

/// The example, with the tests' own secrets and certificates in place of those that it names.
fn with_its_files(block: String) -> String {
    let folder = repository().join("tests/config/valid");
    let folder = folder.to_str().unwrap();
    let named = ["redis-ca.pem", "gateway.pem", "gateway.key"];
    let block = named.iter().fold(block, |block, name| {
        block.replace(&format!("\"{name}\""), &format!("\"{folder}/{name}\""))
    });
    let certificates = repository().join("tests/config/tls");
    let certificates = format!("\"{}/", certificates.display());
    let block = block
        .replace("tls/partners-ca.pem", "tls/authority.pem")
        .replace(CERTIFICATES, &certificates);
    let block = block.replace("/run/secrets/acme", &format!("{folder}/acme.secret"));
    let tokens = [
        "{ file = \"/run/secrets/tollgate-admin\" }",
        "{ env = \"TOLLGATE_TOKEN_ANNA\" }",
    ];
    let block = tokens.iter().fold(block, |block, place| {
        let token = format!("\"in-place-of-{:-<32}\"", place.len());
        block.replace(place, &token)
    });
    let secrets = ["redis", "sentinel"];
    secrets.iter().fold(block, |block, name| {
        block.replace(
            &format!("/run/secrets/{name}"),
            &format!("{folder}/every-key.secret"),
        )
    })
}

#[tokio::test]
async fn every_file_that_we_print_is_good() {
    let mut seen = 0;
    // The pages of the diagnostics show invalid files too. They are compared with the parser where they are generated.
    let shows_wrong_files = |page: &PathBuf| {
        page.ends_with("docs/diagnostics.md")
            || page.starts_with(repository().join("src/config/report/pages"))
    };
    for page in pages().into_iter().filter(|page| !shows_wrong_files(page)) {
        for block in blocks(&std::fs::read_to_string(&page).unwrap()) {
            let block = with_its_files(block);
            let done = check(&block).await;
            assert_eq!(done.code, Some(0), "{}:\n{block}\n{done:?}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no page has a file");
}
