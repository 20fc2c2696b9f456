//! C libraries that are loaded into a process and change what it sees.

use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Builds `source` in `folder`, and returns the path for `LD_PRELOAD`.
pub(crate) async fn preload(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (text, library) = (
        folder.join(format!("{name}.c")),
        folder.join(format!("{name}.so")),
    );
    std::fs::write(&text, source).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &text])
        .status();
    let built = built.await.expect("Rust needs a C linker, so there is cc");
    assert!(built.success());
    library
}
