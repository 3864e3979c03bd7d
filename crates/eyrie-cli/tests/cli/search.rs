//! Tests of `find` and `du`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::time::{Duration, SystemTime};

use eyrie::{Credentials, Kind, Posix, PosixExt, Target, Volume};

use crate::Sandbox;

/// Makes a volume with files that differ in name, level, type and size, which `find` compares.
fn sandbox_with_files() -> Sandbox {
    let sandbox = Sandbox::with_volume("64M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::of_process());
    files.create_dir_all("/a/b/c").unwrap();
    files.create_dir("/a/Empty").unwrap();
    files.write("/a/main.rs", vec![1; 2048]).unwrap();
    files.write("/a/b/lib.RS", vec![1; 100]).unwrap();
    files.write("/a/b/c/.hidden.rs", "").unwrap();
    files.symlink("nowhere".as_ref(), "/a/link.rs".into()).unwrap();
    files.mknod("/a/pipe".into(), Kind::Fifo, 0o600, 0).unwrap();
    drop(files);
    volume.close().unwrap();
    sandbox
}

/// Returns the results of `find` under `/a`, in the printed order and without the name of the volume.
fn found(sandbox: &Sandbox, conditions: &[&str]) -> Vec<String> {
    let output = sandbox.succeed(["find", "vol:/a"].iter().chain(conditions));
    let lines =
        output.lines().map(|line| line.strip_prefix("vol:/").expect("a place in the volume").to_owned());
    lines.collect()
}

#[test]
fn find_shows_entries_that_meet_all_conditions() {
    let sandbox = sandbox_with_files();
    let all = [
        "a",
        "a/Empty",
        "a/b",
        "a/b/c",
        "a/b/c/.hidden.rs",
        "a/b/lib.RS",
        "a/link.rs",
        "a/main.rs",
        "a/pipe",
    ];
    let cases: [(&[&str], &[&str]); 18] = [
        (&[], &all),
        (&["--name", "*.rs"], &["a/b/c/.hidden.rs", "a/link.rs", "a/main.rs"]),
        (&["--name", "*.rs", "--type", "f"], &["a/b/c/.hidden.rs", "a/main.rs"]),
        (&["--name", "*.rs", "--name", "m*"], &["a/main.rs"]),
        (&["--iname", "*.rs", "--path", "/a/b/*"], &["a/b/c/.hidden.rs", "a/b/lib.RS"]),
        (&["--type", "d"], &["a", "a/Empty", "a/b", "a/b/c"]),
        (&["--type", "l,p"], &["a/link.rs", "a/pipe"]),
        (&["--type", "s"], &[]),
        (&["--type", "f", "--size", "+100"], &["a/main.rs"]),
        (&["--type", "f", "--size", "100"], &["a/b/lib.RS"]),
        (&["--type", "f", "--size", "-2k"], &["a/b/c/.hidden.rs", "a/b/lib.RS"]),
        (&["--type", "f", "--size", "2k"], &["a/main.rs"]),
        (&["--empty"], &["a/Empty", "a/b/c/.hidden.rs"]),
        (&["--empty", "--type", "d"], &["a/Empty"]),
        (&["--max-depth", "0"], &["a"]),
        (&["--max-depth", "1", "--min-depth", "1", "--type", "d"], &["a/Empty", "a/b"]),
        (&["--min-depth", "3"], &["a/b/c/.hidden.rs"]),
        (&["--mtime", "0"], &all),
    ];
    for (conditions, expected) in cases {
        assert_eq!(found(&sandbox, conditions), expected, "{conditions:?}");
    }
    assert!(found(&sandbox, &["--mtime", "+0"]).is_empty());
    assert_eq!(sandbox.succeed(["find", "vol", "--max-depth", "1"]), "vol:/\nvol:/a\n");
    assert_eq!(sandbox.succeed(["find", "vol:/a/main.rs"]), "vol:/a/main.rs\n");
    sandbox.fail(3, &["vol:/nowhere"], ["find", "vol:/nowhere"]);
    sandbox.fail(3, &["nowhere"], ["find", "vol:/", "--newer", "nowhere"]);
}

#[test]
fn find_compares_times() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    let now = SystemTime::now();
    for (name, days) in [("new", 0), ("week", 7), ("month", 30)] {
        let file = fs::File::create(sandbox.path("tree").join(name)).unwrap();
        file.set_modified(now - Duration::from_secs(days * 86_400 + 600)).unwrap();
    }
    sandbox.succeed(["import", "tree", "vol:/a"]);
    let files = |conditions: &[&str]| found(&sandbox, &[&["--type", "f"], conditions].concat());
    assert_eq!(files(&["--mtime", "-7"]), ["a/new"]);
    assert_eq!(files(&["--mtime", "7"]), ["a/week"]);
    assert_eq!(files(&["--mtime", "+7"]), ["a/month"]);
    assert_eq!(files(&["--newer", "vol:/a/week"]), ["a/new"]);
    assert_eq!(files(&["--newer", "tree/month"]), ["a/new", "a/week"]);
}

#[test]
fn find_prints_nul_and_json() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/new\nline"), "12345").unwrap();
    symlink("x", sandbox.path("tree/soft")).unwrap();
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    let printed = sandbox.succeed(["find", "vol:/tree", "-0", "--min-depth", "1"]);
    assert_eq!(printed, "vol:/tree/new\nline\0vol:/tree/soft\0");
    let json = sandbox.succeed(["find", "vol:/", "--json", "--type", "f"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!((&json[0]["path"], &json[0]["size"]), (&"/tree/new\nline".into(), &5.into()));
}

/// Runs `du`, and returns the name and the number of each line.
fn sizes(sandbox: &Sandbox, arguments: &[&str]) -> Vec<(String, u64)> {
    let output = sandbox.succeed(["du"].iter().chain(arguments));
    let line = |line: &str| {
        let (number, name) = line.split_once('\t').expect("a number and a name");
        (name.to_owned(), number.parse().expect("a number"))
    };
    output.lines().map(line).collect()
}

#[test]
fn du_sums_directories() {
    let sandbox = Sandbox::with_volume("64M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::of_process());
    files.create_dir_all("/a/b").unwrap();
    files.write("/a/b/file", vec![1; 300 << 10]).unwrap();
    files.write("/a/small", "x").unwrap();
    files.hard_link("/a/b/file", "/a/same").unwrap();
    files.hard_link("/a/b/file", "/again").unwrap();
    files.create_file("/hole").unwrap().set_len(1 << 30).unwrap();
    let allocated = |path: &str| files.stat(Target::NoFollow(path.into())).unwrap().allocated;
    let b = allocated("/a/b") + allocated("/a/b/file");
    let a = b + allocated("/a") + allocated("/a/small");
    let all = a + allocated("/") + allocated("/hole");
    let [b, a, all] = [b, a, all].map(|bytes| bytes.div_ceil(1024));
    drop(files);
    volume.close().unwrap();

    let named = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
        list.iter().map(|&(name, number)| (name.to_owned(), number)).collect()
    };
    let (in_b, in_a, root) = (("vol:/a/b", b), ("vol:/a", a), ("vol:/", all));
    assert_eq!(sizes(&sandbox, &["vol"]), named(&[in_b, in_a, root]));
    assert_eq!(sizes(&sandbox, &["-d", "1", "vol:/"]), named(&[in_a, root]));
    assert_eq!(sizes(&sandbox, &["-s", "vol:/"]), named(&[root]));
    assert_eq!(sizes(&sandbox, &["-sc", "vol:/a", "vol:/a/b"]), named(&[in_a, ("total", a)]));
    // A file that was counted under another name is not counted again.
    assert_eq!(sizes(&sandbox, &["-sc", "vol:/a/b", "vol:/again"]), named(&[in_b, ("total", b)]));
    let files = sizes(&sandbox, &["-a", "--apparent-size", "vol:/"]);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["vol:/a/b/file", "vol:/a/b", "vol:/a/small", "vol:/a", "vol:/hole", "vol:/"]);
    assert_eq!([files[0].1, files[2].1, files[4].1], [300, 1, 1 << 20]);
    assert!(sandbox.succeed(["du", "-h", "--apparent-size", "vol:/hole"]).starts_with("1.0G\t"));
    sandbox.succeed(["mkdir", "vol:/huge"]);
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    for name in 0..5 {
        let files = volume.files(Credentials::of_process());
        files.create_file(format!("/huge/{name}")).unwrap().set_len(1 << 62).unwrap();
    }
    volume.close().unwrap();
    assert!(sandbox.succeed(["du", "-sh", "--apparent-size", "vol:/huge"]).starts_with("16E\t"));
    assert!(sandbox.succeed(["du", "--help"]).contains("-h, --human-readable"));
    sandbox.fail(3, &["vol:/nowhere"], ["du", "vol:/nowhere"]);
    sandbox.fail(2, &["--all"], ["du", "-sa", "vol:/"]);
}

#[test]
fn du_prints_json() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkfs", "two", "--size", "64M"]);
    fs::write(sandbox.path("file"), vec![0; 5000]).unwrap();
    for volume in ["vol:/file", "two:/file"] {
        sandbox.succeed(["cp", "file", volume]);
    }
    let json = sandbox.succeed(["du", "--json", "--apparent-size", "vol:/file", "two:/file"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["total_bytes"], 10_000, "the same inode number in another volume is another file");
    let (one, two) = (&json["entries"][0], &json["entries"][1]);
    assert_eq!((&one["volume"], &one["path"], &one["bytes"]), (&"vol".into(), &"/file".into(), &5000.into()));
    assert_eq!(two["volume"], "two");
}

#[test]
fn unreadable_entry_is_reported_and_the_rest_shown() {
    if !crate::is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/open", "vol:/closed/dir"]);
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    volume.files(Credentials::of_process()).chmod("/closed".into(), 0o700).unwrap();
    volume.close().unwrap();
    for place in ["", "vol"].map(|name| sandbox.path(name)) {
        fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
        for file in fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()) {
            fs::set_permissions(file, Permissions::from_mode(0o777)).unwrap();
        }
    }
    for arguments in [["find", "vol:/"], ["du", "vol:/"]] {
        // If another user cannot run the command, this test ends here.
        let Ok(output) = sandbox.command(arguments).uid(65_534).gid(65_534).output() else { return };
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaints}");
        assert!(
            complaints.contains("vol:/closed") && complaints.contains("1 entry left out"),
            "{complaints}"
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("vol:/open\n"), "{output:?}");
    }
}
