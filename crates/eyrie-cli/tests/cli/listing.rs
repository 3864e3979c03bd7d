//! Tests of `ls`, `df` and `du` with the flags of the GNU commands.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use eyrie::{AclKind, Credentials, Posix, Volume, XattrMode};

use crate::Sandbox;

/// The modification time of the newest file, in seconds since 1970.
const NEWEST_SECOND: u64 = 1_795_000_000;

/// Makes a volume with the files `a` (2000 bytes, the newest), `b` (3 bytes, the oldest), `c` (3000 bytes),
/// `.hidden`, the directory `dir` with the file `inner`, and the symbolic link `link` to `dir`.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir_all(sandbox.path("tree/dir")).unwrap();
    for (name, bytes, age) in
        [("a", 2000, 0), ("b", 3, 7300), ("c", 3000, 61), (".hidden", 1, 10), ("dir/inner", 5, 9)]
    {
        let file = fs::File::create(sandbox.path("tree").join(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(NEWEST_SECOND - age)).unwrap();
    }
    std::os::unix::fs::symlink("dir", sandbox.path("tree/link")).unwrap();
    let dir = fs::File::open(sandbox.path("tree/dir")).unwrap();
    dir.set_modified(UNIX_EPOCH + Duration::from_secs(NEWEST_SECOND - 100)).unwrap();
    sandbox.succeed(["import", "tree", "vol:/t"]);
    sandbox
}

#[test]
fn ls_sorts_names() {
    let sandbox = sandbox();
    let names = |flags: &[&str]| {
        let listed = sandbox.succeed(["ls"].iter().chain(flags).chain(&["vol:/t/a", "vol:/t/b", "vol:/t/c"]));
        listed.replace("vol:/t/", "").replace('\n', " ")
    };
    assert_eq!(names(&[]), "a b c ");
    assert_eq!(names(&["-r"]), "c b a ");
    assert_eq!(names(&["-t"]), "a c b ");
    assert_eq!(names(&["-tr"]), "b c a ");
    assert_eq!(names(&["-S"]), "c a b ");
    assert_eq!(names(&["-Sr", "-1"]), "b a c ");
    // The last of two orders is used.
    assert_eq!(names(&["-S", "-t"]), "a c b ");
    assert_eq!(names(&["-t", "-S"]), "c a b ");
}

#[test]
fn regression_titles_have_the_bytes_of_their_names() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed([OsStr::new("mkdir"), OsStr::from_bytes(b"vol:/d\xfe\\")]);
    let listed = sandbox.run(["ls", "-R", "vol:/"]);
    assert_eq!(listed.stdout, b"vol:/:\nd\xfe\\\n\nvol:/d\xfe\\:\n");
}

#[test]
fn ls_shows_hidden_names_and_directories_themselves() {
    let sandbox = sandbox();
    assert_eq!(sandbox.succeed(["ls", "vol:/t"]), "a\nb\nc\ndir\nlink\n");
    for flag in ["-a", "-A"] {
        assert_eq!(sandbox.succeed(["ls", flag, "vol:/t"]), ".hidden\na\nb\nc\ndir\nlink\n");
    }
    assert_eq!(sandbox.succeed(["ls", "-d", "vol:/t/dir", "vol:/t/a"]), "vol:/t/a\nvol:/t/dir\n");
    assert_eq!(sandbox.succeed(["ls", "-dR", "vol:/t"]), "vol:/t\n");
    // A link to a directory is followed, but not with -l or -d.
    assert_eq!(sandbox.succeed(["ls", "vol:/t/link"]), "inner\n");
    assert_eq!(sandbox.succeed(["ls", "-d", "vol:/t/link"]), "vol:/t/link\n");
    assert!(sandbox.succeed(["ls", "-l", "vol:/t/link"]).ends_with(" vol:/t/link -> dir\n"));
    // Files come before directories, whatever the order of the arguments.
    let both = sandbox.succeed(["ls", "vol:/t/dir", "vol:/t/c"]);
    assert_eq!(both, "vol:/t/c\n\nvol:/t/dir:\ninner\n");
}

#[test]
fn ls_continues_after_a_missing_file() {
    let sandbox = sandbox();
    let output = sandbox.run(["ls", "vol:/none", "vol:/t/a", "vol:/nowhere"]);
    assert_eq!(output.stdout, b"vol:/t/a\n");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaints.lines().count(), 2, "{complaints}");
    assert!(complaints.contains("vol:/none: ") && complaints.contains("vol:/nowhere: "), "{complaints}");
    assert_eq!(output.status.code(), Some(3), "nothing but look-ups failed");
    // If the failures differ, the status is 1.
    let output = sandbox.run(["cat", "vol:/none", "vol:/t"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Returns the columns of `vol:/t/a` in a long listing, in the time zone `zone`.
fn columns(sandbox: &Sandbox, flags: &str, zone: &str) -> Vec<String> {
    let mut command = sandbox.command(["ls", flags, "vol:/t/a"]);
    let output = command.env("TZ", zone).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// Returns the result of id(1).
fn id(flag: &str) -> String {
    let output = Command::new("id").arg(flag).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn long_listing_has_names_sizes_and_local_times() {
    let sandbox = sandbox();
    let line = columns(&sandbox, "-l", "UTC");
    let owner: Vec<String> = ["-un", "-gn"].map(id).into();
    assert_eq!(line[2..4], owner[..]);
    assert_eq!(line[4..], ["2000", "2026-11-18", "11:06", "vol:/t/a"]);
    assert_eq!(columns(&sandbox, "-l", "XST-5:30")[5..7], ["2026-11-18", "16:36"]);
    let numbers: Vec<String> = ["-u", "-g"].map(id).into();
    assert_eq!(columns(&sandbox, "-n", "UTC")[2..4], numbers[..]);
    assert_eq!(columns(&sandbox, "-lh", "UTC")[4], "2.0K");
    let full = columns(&sandbox, "--full-time", "XST+9:30");
    assert_eq!(full[5..8], ["2026-11-18", "01:36:40.000000000", "-0930"]);
    let stat = sandbox.command(["stat", "vol:/t/a"]).env("TZ", "XST-1").output().unwrap();
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.contains(" 2026-11-18 12:06:40.000000000 +0100\n"), "{stat}");
    assert!(stat.contains(&format!("user {} ({})", owner[0], numbers[0])), "{stat}");
}

#[test]
fn long_listing_has_the_columns_of_gnu_ls() {
    let sandbox = sandbox();
    let mut gnu = Command::new("ls");
    let gnu =
        gnu.args(["-lA", "--time-style=long-iso", "tree"]).current_dir(sandbox.path("")).env("LC_ALL", "C");
    let gnu = String::from_utf8(gnu.output().unwrap().stdout).unwrap();
    let expected: Vec<Vec<&str>> =
        gnu.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let own = sandbox.succeed(["ls", "-la", "vol:/t"]);
    let own: Vec<Vec<&str>> = own.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(own.len(), 6);
    for (own, expected) in own.iter().zip(&expected) {
        // The size of a directory depends on the file system, so it is not compared.
        let is_dir = own[0].starts_with('d');
        let kept = |column: &usize| !(is_dir && *column == 4);
        for column in (0..expected.len()).filter(kept) {
            assert_eq!(own[column], expected[column], "{own:?} {expected:?}");
        }
    }
}

#[test]
fn mode_of_a_file_with_an_acl_ends_with_a_plus_sign() {
    let sandbox = sandbox();
    let modes = |what: &str| -> Vec<String> {
        let listed = sandbox.succeed(["ls", "-l", what]);
        listed.lines().map(|line| line[..11].to_owned()).collect()
    };
    assert_eq!(modes("vol:/t")[..2], ["-rw-r--r-- ", "-rw-r--r-- "]);
    // An entry has a tag, permissions and the number of a user or group.
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 4, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    files.setxattr("/t/b".into(), AclKind::Access.name(), &acl, XattrMode::Set).unwrap();
    files.setxattr("/t/dir".into(), AclKind::Default.name(), &acl, XattrMode::Set).unwrap();
    drop(files);
    volume.close().unwrap();
    let expected = ["-rw-r--r-- ", "-rw-r--r--+", "-rw-r--r-- ", "drwxr-xr-x+", "lrwxrwxrwx "];
    assert_eq!(modes("vol:/t"), expected);
    assert_eq!(modes("vol:/t/b"), ["-rw-r--r--+"]);
}

#[test]
fn ls_colours_names_on_demand() {
    let sandbox = sandbox();
    let listed = |color: &[&str]| sandbox.succeed(["ls"].iter().chain(color).chain(&["vol:/t"]));
    for color in ["--color", "--color=always"] {
        assert!(listed(&[color]).contains("\u{1b}[1m\u{1b}[34mdir\u{1b}[0m"), "{}", listed(&[color]));
    }
    for color in [&[][..], &["--color=auto"], &["--color=never"]] {
        assert!(!listed(color).contains('\u{1b}'));
    }
    let mut forced = sandbox.command(["ls", "--color=never", "vol:/t"]);
    let forced = forced.env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(!forced.stdout.contains(&0x1b), "the flag must win over the environment");
    sandbox.fail(2, &["--color", "never", "sometimes"], ["ls", "--color=sometimes", "vol:/t"]);
}

#[test]
fn json_listing_keeps_the_order_and_names_the_volume() {
    let sandbox = sandbox();
    let text = sandbox.succeed(["ls", "-tr", "--json", "vol:/t"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json[0]["volume"], &json[0]["path"]), (&"vol".into(), &"/t/b".into()));
    assert_eq!(json.as_array().unwrap().len(), 5);
}

#[test]
fn human_sizes_need_no_long_flag() {
    let sandbox = sandbox();
    fs::write(sandbox.path("large"), vec![1; 3 << 20]).unwrap();
    sandbox.succeed(["cp", "large", "vol:/large"]);
    let df = sandbox.succeed(["df", "-h", "vol"]);
    assert_eq!(df.lines().nth(1).unwrap().split_whitespace().nth(1), Some("64M"), "{df}");
    assert!(sandbox.succeed(["df", "vol"]).contains("64.0 MiB"));
    assert_eq!(sandbox.succeed(["du", "-h", "vol:/large"]), "3.0M\tvol:/large\n");
    assert!(sandbox.succeed(["df", "--human-readable", "vol"]).contains("64M"));
    // The other volumes are shown although one is missing.
    let output = sandbox.run(["df", "missing", "vol", "./vol"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3);
    for command in ["ls", "df", "du"] {
        assert!(sandbox.succeed([command, "--help"]).contains("-h, --human-readable"), "{command}");
    }
}
