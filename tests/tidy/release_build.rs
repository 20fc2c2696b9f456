//! `deploy/build/release` with stubs in place of all tools: the tools that it finds, the steps that it leaves out, and
//! its last lines.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The commands that the script needs on every system.
const PLAIN: [&str; 15] = [
    "bash", "cat", "chmod", "cp", "dirname", "env", "grep", "head", "mkdir", "mv", "rm", "sed",
    "seq", "tail", "wc",
];

const RUSTC: &str = r#"#!/usr/bin/env bash
case $1 in
    -vV) printf 'rustc 1.95.0\nhost: here-linux-gnu\nLLVM version: 22.1.0\n' ;;
    *) echo /nowhere ;;
esac
"#;

/// Records its arguments, and "builds" a program that prints its version.
const CARGO: &str = r#"#!/usr/bin/env bash
echo "build strip=${CARGO_PROFILE_DIST_STRIP:-} debug=${CARGO_PROFILE_DIST_DEBUG:-} flags=$RUSTFLAGS" >>calls
mkdir -p "$CARGO_TARGET_DIR/here-linux-gnu/dist"
printf '#!/usr/bin/env bash\necho tollgate\n' >"$CARGO_TARGET_DIR/here-linux-gnu/dist/tollgate"
chmod +x "$CARGO_TARGET_DIR/here-linux-gnu/dist/tollgate"
"#;

/// The training leaves a profile of each kind.
const PYTHON: &str = r#"#!/usr/bin/env bash
echo "train" >>calls
: >target/release-build/profile/a.profraw
: >target/release-build/profile/tollgate.fdata.1
"#;

/// BOLT reads its first argument, and writes the file named after `-o`.
const BOLT: &str = r#"#!/usr/bin/env bash
echo "bolt ${0##*/}" >>calls
cp "$1" "$(echo "$@" | sed 's/.*-o \([^ ]*\) .*/\1/; s/.*-o \([^ ]*\)$/\1/')"
"#;

const MERGE: &str = "#!/usr/bin/env bash\necho merge >>calls\n";
const OBJCOPY: &str = "#!/usr/bin/env bash\necho \"objcopy $1\" >>calls\n";

/// A copy of the script in its own folder, with stubs as tools.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn with(tools: &[(&str, &str)]) -> Self {
        let workshop = Self(tempfile::tempdir().unwrap());
        let here = workshop.0.path();
        fs::create_dir_all(here.join("deploy/build")).unwrap();
        fs::create_dir_all(here.join("bin")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/build/release");
        fs::copy(script, here.join("deploy/build/release")).unwrap();
        for name in PLAIN {
            let path = std::env::var_os("PATH").unwrap();
            let mut folders = std::env::split_paths(&path).map(|folder| folder.join(name));
            let found = folders.find(|path| path.exists());
            symlink(found.expect(name), here.join("bin").join(name)).unwrap();
        }
        let own = [("bin/rustc", RUSTC), ("bin/cargo", CARGO)];
        for (name, text) in own.iter().chain(tools) {
            workshop.put(name, text);
        }
        workshop
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The output of the script, line by line, and the commands that it called.
    fn run(&self) -> (Vec<String>, String) {
        let here = self.0.path();
        let script: PathBuf = here.join("deploy/build/release");
        let done = Command::new(here.join("bin/bash"))
            .arg(script)
            .env_clear()
            .env("PATH", here.join("bin"))
            .env("LLVM_LIBRARIES", here.join("lib"))
            .output()
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{said}");
        assert!(here.join("target/release-build/tollgate").exists());
        let calls = fs::read_to_string(here.join("calls")).unwrap();
        (said.lines().map(str::to_owned).collect(), calls)
    }
}

#[test]
fn an_older_bolt_than_the_compilers_llvm_is_found() {
    for folder in ["bin", "lib/llvm-19/bin"] {
        let names = match folder {
            "bin" => ["llvm-bolt-19", "merge-fdata-19", "llvm-objcopy-19"],
            _ => ["llvm-bolt", "merge-fdata", "llvm-objcopy"],
        };
        let [bolt, merge, objcopy] = names.map(|name| format!("{folder}/{name}"));
        let workshop = Workshop::with(&[
            ("bin/python3", PYTHON),
            (&bolt, BOLT),
            (&merge, MERGE),
            (&objcopy, OBJCOPY),
        ]);
        let (said, calls) = workshop.run();
        let of_bolt = format!("bolt {}", names[0]);
        assert_eq!(
            calls.lines().filter(|call| *call == of_bolt).count(),
            2,
            "{calls}"
        );
        assert!(
            calls.contains("merge\n") && calls.contains("objcopy --strip-debug"),
            "{calls}"
        );
        assert!(
            calls.contains("strip=none debug= flags=  -Clink-arg=-Wl,--emit-relocs"),
            "{calls}"
        );
        let last = said.last().unwrap();
        let expected = format!("without a profile, laid out in place by {}; 0 kB", names[0]);
        assert!(last.ends_with(&expected), "{said:?}");
        let missing = "no llvm-profdata of LLVM 22 (rustup component add llvm-tools; Debian: apt install llvm-22)";
        assert!(said.iter().any(|line| line.contains(missing)), "{said:?}");
    }
}

#[test]
fn everything_there_is_a_build_with_a_profile_that_is_laid_out() {
    let profdata = "#!/usr/bin/env bash\necho \"profdata $1\" >>calls\n";
    let workshop = Workshop::with(&[
        ("bin/python3", PYTHON),
        ("bin/llvm-profdata-22", profdata),
        ("bin/llvm-bolt", BOLT),
        ("bin/merge-fdata", MERGE),
        ("bin/llvm-objcopy-22", OBJCOPY),
    ]);
    let (said, calls) = workshop.run();
    assert_eq!(calls.matches("train\n").count(), 2, "{calls}");
    assert!(
        calls.contains("profdata merge") && calls.contains("-Cprofile-use="),
        "{calls}"
    );
    let last = said.last().unwrap();
    let expected = "with the profile of its training, laid out in place by llvm-bolt; 0 kB";
    assert!(last.ends_with(expected), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("Debian")), "{said:?}");
}

#[test]
fn without_the_tools_of_llvm_debug_information_goes_all_the_same() {
    let workshop = Workshop::with(&[("bin/python3", PYTHON)]);
    let (said, calls) = workshop.run();
    assert_eq!(calls, "build strip=debuginfo debug= flags= \n");
    for missing in ["apt install llvm-22", "apt install bolt-19"] {
        assert!(said.iter().any(|line| line.contains(missing)), "{said:?}");
    }
    let last = said.last().unwrap();
    assert!(
        last.ends_with("without a profile, not laid out by BOLT; 0 kB"),
        "{said:?}"
    );

    // BOLT needs relocations. If they are kept, a linker may not remove debug information.
    let workshop = Workshop::with(&[
        ("bin/python3", PYTHON),
        ("bin/llvm-bolt-19", BOLT),
        ("bin/merge-fdata-19", MERGE),
    ]);
    let (said, calls) = workshop.run();
    assert!(calls.starts_with("build strip=none debug=0 "), "{calls}");
    assert!(
        said.iter().any(|line| line.contains("no llvm-objcopy")),
        "{said:?}"
    );

    let (said, calls) = Workshop::with(&[]).run();
    assert_eq!(calls, "build strip=debuginfo debug= flags= \n");
    assert!(said[0].contains("apt install python3"), "{said:?}");
}
