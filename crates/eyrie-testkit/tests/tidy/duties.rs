//! Checks that each duty has one place: paths, encoders, permissions, ordering, locks.

use super::{assert_none, sources, uses};

#[test]
fn nothing_below_the_interfaces_knows_paths() {
    let engine = "crates/eyrie-engine/src";
    let below = ["crates/eyrie-medium/src", engine];
    let host = [
        "crates/eyrie-engine/src/host/",
        "crates/eyrie-medium/src/host.rs",
        "crates/eyrie-medium/src/paged/usable.rs",
    ];
    assert_none("knowledge of `/`", &uses(&below, &host, &["b'/'", "'/'", "\"/\"", "PathBuf", "OsStr"]));
    // The path of a volume on the host passes through these files. The engine has no other paths.
    let passes = [
        &host[..],
        &[
            "crates/eyrie-engine/src/volume/copy.rs",
            "crates/eyrie-engine/src/volume/open.rs",
            "crates/eyrie-engine/src/volume/resize.rs",
            "crates/eyrie-engine/src/scm/open.rs",
        ],
    ]
    .concat();
    assert_none("paths of the host", &uses(&below, &passes, &["std::path", "&Path"]));
}

#[test]
fn each_duty_has_one_module() {
    let encoder = "crates/eyrie-engine/src/op/encode";
    let encodes: Vec<String> = sources()
        .iter()
        .filter(|source| !source.is_in(encoder))
        .filter(|source| {
            let code = source.code();
            code.contains("Op::Create {") && (code.contains("to_le_bytes") || code.contains("IntoBytes"))
        })
        .map(|source| source.path.display().to_string())
        .collect();
    assert_none("Ops encoded elsewhere", &encodes);
    let permissions = uses(
        &[
            "crates/eyrie/src",
            "crates/eyrie-engine/src",
            "crates/eyrie-client/src",
            "crates/eyrie-service/src",
        ],
        &["crates/eyrie-engine/src/access.rs", "crates/eyrie-engine/src/access/"],
        &[
            "in_group(",
            "credentials.is_root()",
            ".has(Capabilities::",
            ".has(access::Capabilities::",
            "0o4000",
            "0o2000",
            "0o1000",
            "0o111",
        ],
    );
    assert_none("permission rules elsewhere", &permissions);
    let barriers = uses(
        &[
            "crates/eyrie/src",
            "crates/eyrie-cli/src",
            "crates/eyrie-engine/src/object",
            "crates/eyrie-engine/src/scm",
        ],
        &[],
        &[".barrier(", ".publish(", ".publish_line(", ".publish_all(", ".settle("],
    );
    assert_none("ordering outside transactions and volumes", &barriers);
}

#[test]
fn look_ups_and_reads_take_no_lock_and_make_no_system_call() {
    let objects =
        uses(&["crates/eyrie-engine/src/object"], &[], &["Mutex", "RwLock", "rustix", "libc", "std::fs"]);
    assert_none("locks or system calls in objects", &objects);
    let reads =
        uses(&["crates/eyrie-engine/src/scm/read.rs"], &[], &["locks.hold", "Mutex", "lock(", "rustix"]);
    assert_none("locks or system calls in reads", &reads);
    // The table of generations is for nodes of a client. A process that owns its volume makes no call that
    // uses it.
    let except = ["crates/eyrie/src/pxfs/nodes/generations.rs"];
    let interface = uses(&["crates/eyrie/src/pxfs"], &except, &["Mutex", "RwLock", "std::fs", "rustix::fs"]);
    assert_none("locks or system calls in PXFS", &interface);
}

/// The public functions of the library use an errno type of the library itself. So a new version of `rustix`
/// does not change the interface of the library, and a program needs no dependency on `rustix`.
#[test]
fn library_shows_no_type_of_rustix() {
    let (library, engine) = ("crates/eyrie/src", "crates/eyrie-engine/src");
    let calls_the_host = ["host/", "posix/tests.rs", "repair.rs", "stamps.rs", "volume/options.rs"];
    let calls_the_host = calls_the_host.map(|file| format!("{library}/{file}"));
    let except: Vec<&str> = calls_the_host.iter().map(String::as_str).collect();
    assert_none("modules that use rustix", &uses(&[library], &except, &["rustix"]));
    let shown: Vec<String> = sources()
        .iter()
        .filter(|source| source.is_in(library) || source.is_in(engine))
        .flat_map(|source| {
            let lines = source.text.lines().map(str::trim_start);
            let shown = lines.filter(|line| line.starts_with("pub ") && line.contains("rustix"));
            shown.map(|line| format!("{}: {line}", source.path.display())).collect::<Vec<_>>()
        })
        .collect();
    assert_none("types of rustix in public signatures", &shown);
    let errnos = uses(&[engine, library], &["crates/eyrie-engine/src/errno.rs"], &["use rustix::io::Errno"]);
    assert_none("modules with the errno of rustix", &errnos);
}
