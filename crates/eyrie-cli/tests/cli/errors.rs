//! Tests that a command which fails prints one clear line.

use std::fs;
use std::path::Path;
use std::process::Command;

use eyrie::Volume;
use eyrie_testkit::tree_fixture::fill;

use crate::Sandbox;

/// Returns the path of the volume's segment, which is the largest file in the volume's directory.
pub(crate) fn segment(sandbox: &Sandbox) -> std::path::PathBuf {
    let files = fs::read_dir(sandbox.path("vol")).unwrap().map(|entry| entry.unwrap().path());
    files.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Changes one byte of each page of the volume that has only the byte `filler`.
pub(crate) fn damage_pages_of(sandbox: &Sandbox, filler: u8) {
    let segment = segment(sandbox);
    let mut bytes = fs::read(&segment).unwrap();
    let (mut damaged, is_filler) = (0, |page: &[u8]| page.iter().all(|&byte| byte == filler));
    for page in bytes.chunks_exact_mut(4096).filter(|page| is_filler(page)) {
        page[0] = !filler;
        damaged += 1;
    }
    assert!(damaged > 0, "no page has only {filler:#x}");
    fs::write(segment, bytes).unwrap();
}

#[test]
fn missing_volume_is_one_clear_line() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("empty")).unwrap();
    fs::write(sandbox.path("file"), "x").unwrap();
    for (name, status) in [("missing", 3), ("empty", 1), ("file", 1)] {
        sandbox.fail(status, &[name, "volume"], ["info", name]);
        sandbox.fail(status, &[name, "volume"], ["ls", &format!("{name}:/")]);
        sandbox.fail(8, &[name, "volume"], ["fsck", name]);
    }
}

/// Returns a value for a required argument. `name` is its name in the help text.
fn word_for(name: &str) -> &str {
    match name {
        "VOLUME" => "none",
        "VOLUME:/path" | "VOLUME:/dir" | "VOLUME:/new" | "SOURCE" | "EXISTING" | "PLACE" => "none:/a",
        "TARGET" | "DIR" => "dir",
        "NEW" | "TRACE" => "new",
        "SCRIPT" => "calls",
        "MODE" => "700",
        "OWNER" => "0",
        "+-=[ia]" => "+i",
        "NAME" | "KEY" => "user.a",
        other => panic!("no word for the argument {other}"),
    }
}

/// Runs every command that takes a volume. The named volume does not exist. The help texts show which
/// arguments a command takes.
#[test]
fn every_command_refuses_a_missing_volume_with_status_3() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("dir")).unwrap();
    fs::write(sandbox.path("calls"), "mkdir /a 0700\n").unwrap();
    let mut tested = 0;
    for names in crate::subcommands(&sandbox) {
        let name = names.join(" ");
        let help = sandbox.succeed(names.iter().map(String::as_str).chain(["--help"]));
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: eyrie ")).unwrap();
        let usage = usage.strip_prefix(&name).unwrap().trim_start_matches(" [OPTIONS]");
        let takes_volume = ["VOLUME", "SOURCE", "PLACE"].iter().any(|word| usage.contains(word));
        // `mkfs` and `replay` make a volume.
        if !takes_volume || ["mkfs", "replay"].contains(&&*name) {
            continue;
        }
        let extra: &[&str] = match &*name {
            "truncate" => &["--size", "0"],
            "quota set" => &["--grace", "3d"],
            "resize" => &["1G"],
            "rm" => &["none:/a"],
            _ => &[],
        };
        let required = usage.split(' ').filter_map(|word| word.strip_prefix('<')?.split_once('>'));
        let arguments = required.map(|(argument, _)| argument).filter(|argument| !argument.starts_with("--"));
        let words = arguments.map(word_for).chain(extra.iter().copied());
        let words: Vec<&str> = names.iter().map(String::as_str).chain(words).collect();
        // These two have the statuses of fsck(8).
        let status = if ["fsck", "scrub"].contains(&&*name) { 8 } else { 3 };
        let wanted = "none: no volume is there: make one with `eyrie mkfs`, or check the spelling";
        sandbox.fail(status, &["eyrie: cannot ", wanted], words);
        tested += 1;
    }
    assert!(tested > 40, "{tested} commands");
    assert!(!sandbox.path("none").exists() && !sandbox.path("new").exists());
    sandbox.fail(3, &["cannot unmount: none: ", "check the spelling"], ["umount", "none"]);
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("dir")).unwrap();
    sandbox.succeed(["mkdir", "-p", "vol:/dir", "vol:/other/file"]);
    sandbox.succeed(["touch", "vol:/file"]);
    let missing = "No such file or directory: check the spelling";
    let (dir, file) = ("the source is a directory", "the source is a file");
    let another = "choose another name, or remove the target first";
    for (status, line, command) in [
        (3, &*format!("link: vol:/missing: {missing}"), &["ln", "vol:/missing", "vol:/new"][..]),
        (3, &*format!("link: vol:/missing: {missing}"), &["ln", "-f", "vol:/missing", "vol:/file"]),
        (3, &*format!("link: vol:/none/new: {missing}"), &["ln", "vol:/file", "vol:/none/new"]),
        (3, &*format!("link: vol:/none/new: {missing}"), &["ln", "-s", "gone", "vol:/none/new"]),
        (1, "read: vol:/dir: Is a directory: name a file", &["cat", "vol:/dir"]),
        (1, "list: vol:/file/x: Not a directory: check the path", &["ls", "vol:/file/x"]),
        (
            1,
            &*format!("move: vol:/dir to vol:/file: {dir}, and the target is a file: {another}"),
            &["mv", "vol:/dir", "vol:/file"],
        ),
        (
            1,
            &*format!("move: vol:/file to vol:/other/file: {file}, and the target is a directory: {another}"),
            &["mv", "vol:/file", "vol:/other"],
        ),
        (
            1,
            "move: vol:/other to vol:/other/file/new: vol:/other/file/new is inside it",
            &["mv", "vol:/other", "vol:/other/file/new"],
        ),
        (
            1,
            "list the sessions of: vol: no service shares it: start one with `eyrie serve`",
            &["sessions", "vol"],
        ),
        (
            1,
            "unmount: dir: no volume of Eyrie is mounted there: `findmnt -t fuse.eyrie` lists the mounts",
            &["umount", "dir"],
        ),
    ] {
        sandbox.fail(status, &[&format!("eyrie: cannot {line}\n")], command);
    }
}

#[test]
fn existing_target_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.fail(1, &["vol", "already"], ["mkfs", "vol", "--size", "64M"]);
    fs::create_dir(sandbox.path("tree")).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    sandbox.fail(1, &["vol:/tree", "exists"], ["import", "tree", "vol:/tree"]);
    sandbox.fail(1, &["vol:/", "exists"], ["import", "tree", "vol:/"]);
    sandbox.fail(1, &["tree", "exists"], ["export", "vol:/tree", "tree"]);
    sandbox.fail(1, &["vol:/tree"], ["mkdir", "vol:/tree"]);
}

#[test]
fn unsupported_medium_is_one_clear_line() {
    let sandbox = Sandbox::new();
    let mkfs = |medium| ["mkfs", "vol", "--size", "64M", "--medium", medium];
    sandbox.fail(1, &["vol", "persistent memory", "-o dax"], mkfs("pmem"));
    sandbox.fail(2, &["tape", "auto", "dram", "pmem"], mkfs("tape"));
    assert!(!sandbox.path("vol").exists(), "the failed mkfs left a volume behind");
    assert!(sandbox.succeed(mkfs("auto")).contains(" on dram"));
    let info = sandbox.succeed(["info", "vol"]);
    assert!(info.contains("dram, every completed call survives the death of the process"), "{info}");
    let info = sandbox.succeed(["info", "--json", "vol"]);
    assert!(info.contains("\"medium\": \"dram\"") && info.contains("\"promise\": \"every "), "{info}");
    fs::remove_dir_all(sandbox.path("vol")).unwrap();
    assert!(sandbox.succeed(mkfs("paged")).contains(" on paged"));
    let info = sandbox.succeed(["info", "vol"]);
    assert!(info.contains("paged, synchronised changes"), "{info}");
}

#[test]
fn missing_file_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.fail(3, &["nowhere"], ["import", "nowhere", "vol:/new"]);
    fs::write(sandbox.path("file"), "x").unwrap();
    sandbox.fail(1, &["file", "directory"], ["import", "file", "vol:/new"]);
    sandbox.fail(3, &["vol:/a/b"], ["import", ".", "vol:/a/b"]);
    sandbox.fail(3, &["vol:/nowhere"], ["export", "vol:/nowhere", "out"]);
    assert!(!sandbox.path("out").exists());
    for command in ["cat", "ls", "stat", "rm", "tree"] {
        sandbox.fail(3, &["vol:/nowhere"], [command, "vol:/nowhere"]);
    }
    sandbox.fail(3, &["vol:/nowhere"], ["mv", "vol:/nowhere", "vol:/there"]);
    sandbox.fail(3, &["nowhere"], ["cp", "nowhere", "vol:/there"]);
    sandbox.fail(3, &["nowhere"], ["tour", "nowhere"]);
}

#[test]
fn directory_in_place_of_a_file_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.fail(1, &["cannot read: vol:/dir: Is a directory"], ["cat", "vol:/dir"]);
}

#[test]
fn too_long_name_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    let place = format!("vol:/{}", "n".repeat(256));
    sandbox.fail(1, &["255"], ["mkdir", &place]);
    sandbox.fail(1, &["a path at most 4095"], ["mkdir", &format!("vol:/{}", "n/".repeat(2048))]);
    sandbox.succeed(["mkdir", "vol:/store"]);
    sandbox.fail(1, &["255"], ["kv", "put", "vol:/store", &"k".repeat(256), "value"]);
}

#[test]
fn nonempty_directory_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/a", "vol:/dir/a/inner"]);
    // The message names no option, because no option of `mv` helps.
    sandbox.fail(
        1,
        &["vol:/dir/a", "not empty: remove its contents first, or choose another name"],
        ["mv", "vol:/a", "vol:/dir"],
    );
    assert_eq!(sandbox.succeed(["ls", "vol:/dir/a"]), "inner\n");
}

#[test]
fn volume_in_use_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    sandbox.fail(1, &["vol", "in use"], ["ls", "vol:/"]);
    sandbox.fail(8, &["vol", "in use"], ["fsck", "vol"]);
    volume.close().unwrap();
    sandbox.succeed(["ls", "vol:/"]);
}

#[test]
fn truncated_volume_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    for bytes in [4096, 100, 0] {
        fs::File::options().write(true).open(segment(&sandbox)).unwrap().set_len(bytes).unwrap();
        sandbox.fail(1, &["vol"], ["ls", "vol:/"]);
        sandbox.fail(8, &["vol"], ["fsck", "vol"]);
    }
}

#[test]
fn full_volume_is_one_clear_line() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/large"), vec![1; 100 << 20]).unwrap();
    sandbox.fail(1, &["vol:/tree", "space", "larger volume"], ["import", "tree", "vol:/tree"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    assert_eq!(sandbox.succeed(["ls", "vol:/tree"]), "");
    sandbox.succeed(["rm", "-r", "vol:/tree"]);
    sandbox.fail(1, &["vol:/large", "so far: 0 entries, 0 B"], ["cp", "tree/large", "vol:/large"]);
    // A copy that replaces a file is made under another name, which the message does not show.
    sandbox.succeed(["touch", "vol:/large"]);
    sandbox.fail(1, &["vol:/large: ", "space"], ["cp", "tree/large", "vol:/large"]);
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "large\n");
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
}

/// A mounted file system of a limited size. The drop of this value unmounts the file system.
pub struct Mount<'a>(pub &'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // If the unmount fails, the mount stays. The removal of the temporary directory then removes the
        // files of the mounted file system.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn full_host_is_one_clear_line() {
    let sandbox = Sandbox::new();
    let small = sandbox.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = crate::is_root()
        && Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"])
            .arg(&small)
            .output()
            .is_ok_and(|output| output.status.success());
    if !mounted {
        return;
    }
    let _mount = Mount(&small);
    fs::create_dir(sandbox.path("tree")).unwrap();
    fill(&sandbox.path("tree"), 3000, 100_000).unwrap();
    sandbox.succeed(["mkfs", "small/vol", "--size", "4G"]);
    sandbox.fail(1, &["small/vol:/tree", "is full", "make room"], ["import", "tree", "small/vol:/tree"]);
    assert!(sandbox.succeed(["fsck", "small/vol"]).contains("sound"));
    sandbox.succeed(["rm", "-r", "small/vol:/tree"]);
    sandbox.succeed(["mkdir", "small/vol:/works"]);
    sandbox.fail(1, &["small/new", "space"], ["cp", "-r", "tree", "small/new"]);
}
