//! Tests of the results of commands.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::Sandbox;

#[test]
fn resize_and_trim_change_the_volume() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["resize", "vol", "128M"]);
    let json = |arguments: [&str; 3]| -> serde_json::Value {
        serde_json::from_str(&sandbox.succeed(arguments)).unwrap()
    };
    assert_eq!(json(["info", "--json", "vol"])["size_bytes"], 128 << 20);
    fs::write(sandbox.path("large"), vec![7; 100 << 20]).unwrap();
    sandbox.succeed(["cp", "large", "vol:/large"]);
    sandbox.fail(1, &["vol", "nothing is moved"], ["resize", "vol", "64M"]);
    sandbox.fail(1, &["vol", "room for", "copy it"], ["resize", "vol", "1T"]);
    sandbox.succeed(["rm", "vol:/large"]);
    assert!(json(["trim", "--json", "vol"])["trimmed_bytes"].is_u64());
    assert!(sandbox.succeed(["trim", "vol"]).contains("given back"));
    sandbox.succeed(["resize", "vol", "32M"]);
    assert_eq!(json(["info", "--json", "vol"])["size_bytes"], 32 << 20);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
}

#[test]
fn files_are_made_and_removed() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("a:b"), "hello").unwrap();
    sandbox.succeed(["cp", "./a:b", "vol:/file"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/file", "vol:file"]), "hellohello");
    // As with mkdir(1), a dot at the end stands for the new directory.
    sandbox.succeed(["mkdir", "-p", "vol:/x/./y/z/."]);
    sandbox.succeed(["mkdir", "-p", "vol:/x/y"]);
    sandbox.succeed(["cp", "vol:/file", "vol:/x"]);
    sandbox.succeed(["mv", "vol:/x/file", "vol:/x/y/moved"]);
    sandbox.succeed(["ln", "vol:/file", "vol:/hard"]);
    sandbox.succeed(["ln", "-s", "file", "vol:/soft"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "file\nhard\nsoft\nx\n");
    assert!(sandbox.succeed(["ls", "-l", "vol:/soft"]).trim_end().ends_with("/soft -> file"));
    assert_eq!(sandbox.succeed(["cat", "vol:/soft"]), "hello");
    assert!(
        sandbox.succeed(["tree", "vol:/"]).contains("    └── z\n") || {
            let tree = sandbox.succeed(["tree", "vol:/"]);
            panic!("{tree}")
        }
    );
    assert!(sandbox.succeed(["stat", "vol:/hard"]).contains("2 links"));
    sandbox.succeed(["rm", "-f", "vol:/nothing", "vol:/hard"]);
    sandbox.fail(1, &["vol:/x", "-r"], ["rm", "vol:/x"]);
    sandbox.succeed(["rm", "-r", "vol:/x", "vol:/soft"]);
    assert_eq!(sandbox.succeed(["ls", "vol:"]), "file\n");
    sandbox.succeed(["mv", "vol:/file", "."]);
    assert_eq!(fs::read(sandbox.path("file")).unwrap(), b"hello");
    assert_eq!(sandbox.succeed(["ls", "-a", "vol"]), "");
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
}

#[test]
fn regression_rm_removes_neither_the_root_nor_a_parent() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/a/b"]);
    sandbox.succeed(["ln", "-s", "/", "vol:/top"]);
    for place in [
        "vol:/",
        "vol:",
        "vol:/..",
        "vol:/a/..",
        "vol:/a/b/..",
        "vol:/a/../",
        "vol:/top/",
        "vol:/a/../.",
        "vol:/a/.",
        "vol:/a/./",
    ] {
        sandbox.fail(1, &["cannot remove", "vol:"], ["rm", "-r", place]);
        assert_eq!(sandbox.succeed(["find", "vol:/"]), "vol:/\nvol:/a\nvol:/a/b\nvol:/top\n", "{place}");
    }
}

#[test]
fn copies_between_volumes_replace_files() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkfs", "two", "--size", "64M"]);
    fs::create_dir_all(sandbox.path("dir/inner")).unwrap();
    fs::write(sandbox.path("dir/inner/file"), "first").unwrap();
    sandbox.fail(1, &["dir", "-r"], ["cp", "dir", "vol:/dir"]);
    sandbox.succeed(["cp", "-r", "dir", "vol:/"]);
    sandbox.succeed(["cp", "-r", "vol:/dir", "two:/copy"]);
    fs::write(sandbox.path("file"), "second").unwrap();
    sandbox.succeed(["cp", "file", "vol:/"]);
    sandbox.succeed(["cp", "file", "two:/copy/inner"]);
    sandbox.fail(1, &["vol:/file", "exists"], ["cp", "-r", "dir", "vol:/file"]);
    sandbox.fail(1, &["vol:/dir", "inside"], ["cp", "-r", "vol:/dir", "vol:/dir/inner/new"]);
    sandbox.fail(1, &["same file"], ["cp", "vol:/dir/inner/file", "vol:/dir/inner/file"]);
    sandbox.succeed(["cp", "-r", "two:/copy", "back"]);
    assert_eq!(fs::read(sandbox.path("back/inner/file")).unwrap(), b"second");
    assert_eq!(sandbox.succeed(["ls", "-aR", "two:/copy/inner"]), "two:/copy/inner:\nfile\n");
}

#[test]
fn kv_commands_keep_values() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.fail(3, &["vol:/store", "mkdir"], ["kv", "put", "vol:/store", "key", "value"]);
    sandbox.succeed(["mkdir", "vol:/store"]);
    sandbox.succeed(["kv", "put", "vol:/store", "key", "value"]);
    sandbox.succeed(["kv", "put", "vol:/store", "a/b", "slash"]);
    let mut put =
        sandbox.command(["kv", "put", "vol:/store", "bytes", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"\xff\0\n").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(sandbox.succeed(["kv", "get", "vol:/store", "key"]), "value");
    assert_eq!(sandbox.run(["kv", "get", "vol:/store", "bytes"]).stdout, b"\xff\0\n");
    assert_eq!(sandbox.succeed(["cat", "vol:/store/key"]), "value");
    assert_eq!(sandbox.succeed(["kv", "scan", "vol:/store"]), "a/b\nbytes\nkey\n");
    assert_eq!(sandbox.succeed(["kv", "scan", "vol:/store", "k"]), "key\n");
    assert!(sandbox.succeed(["kv", "scan", "--json", "vol:/store", "k"]).contains("\"bytes\": 5"));
    sandbox.fail(1, &["key", "exists already"], ["kv", "put", "--if-absent", "vol:/store", "key", "new"]);
    sandbox.succeed(["kv", "put", "--if-present", "vol:/store", "key", "replaced"]);
    assert_eq!(sandbox.succeed(["kv", "get", "vol:/store", "key"]), "replaced");
    sandbox.succeed(["kv", "erase", "vol:/store", "key"]);
    sandbox.fail(3, &["key", "no such key"], ["kv", "put", "--if-present", "vol:/store", "key", "new"]);
    sandbox.succeed(["kv", "put", "--if-absent", "vol:/store", "key", "new"]);
    sandbox.succeed(["kv", "erase", "vol:/store", "key"]);
    sandbox.fail(3, &["key", "no such key"], ["kv", "get", "vol:/store", "key"]);
    sandbox.fail(3, &["key", "no such key"], ["kv", "erase", "vol:/store", "key"]);
}

#[test]
fn xattrs_are_set_and_removed() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "bytes").unwrap();
    sandbox.succeed(["cp", "file", "vol:/file"]);
    sandbox.succeed(["ln", "-s", "file", "vol:/link"]);
    sandbox.succeed(["xattr", "set", "vol:/link", "user.colour", "green"]);
    let mut set = sandbox.command(["xattr", "set", "vol:/file", "user.bytes"]);
    let mut set = set.stdin(Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(b"\xff\0\n").unwrap();
    assert!(set.wait().unwrap().success());
    assert_eq!(sandbox.succeed(["xattr", "list", "vol:/file"]), "user.bytes\nuser.colour\n");
    assert_eq!(sandbox.succeed(["xattr", "list", "-P", "vol:/link"]), "");
    assert_eq!(sandbox.succeed(["xattr", "get", "vol:/file", "user.colour"]), "green");
    assert_eq!(sandbox.run(["xattr", "get", "vol:/link", "user.bytes"]).stdout, b"\xff\0\n");
    assert!(sandbox.succeed(["xattr", "list", "--json", "vol:/file"]).contains("\"bytes\": 3"));
    let stat = sandbox.succeed(["stat", "vol:/file"]);
    assert!(stat.contains("  xattrs     user.bytes\n             user.colour\n"), "{stat}");
    let stat: serde_json::Value =
        serde_json::from_str(&sandbox.succeed(["stat", "--json", "-L", "vol:/link"])).unwrap();
    assert_eq!(stat[0]["xattrs"], serde_json::json!(["user.bytes", "user.colour"]));
    let set = ["xattr", "set", "vol:/file", "user.colour", "blue"];
    sandbox.fail(1, &["user.colour of vol:/file", "exists already"], [&set[..], &["--create"]].concat());
    sandbox.succeed([&set[..], &["--replace"]].concat());
    sandbox.succeed(["xattr", "rm", "vol:/file", "user.colour"]);
    sandbox.fail(3, &["user.colour", "none"], ["xattr", "get", "vol:/file", "user.colour"]);
    sandbox.fail(3, &["user.colour", "none"], ["xattr", "rm", "vol:/file", "user.colour"]);
    sandbox.fail(3, &["user.colour", "none"], [&set[..], &["--replace"]].concat());
    sandbox.fail(1, &["system.a", "not supported"], ["xattr", "set", "vol:/file", "system.a", "1"]);
    sandbox.fail(1, &["255 bytes"], ["xattr", "set", "vol:/file", "", "1"]);
    sandbox.fail(1, &["user.a", "not permitted"], ["xattr", "set", "-P", "vol:/link", "user.a", "1"]);
    sandbox.fail(3, &["vol:/none", "spelling"], ["xattr", "list", "vol:/none"]);
}

#[test]
fn stat_shows_time_of_birth() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["touch", "vol:/file"]);
    let stat = |place: &str| -> serde_json::Value {
        let stat: serde_json::Value =
            serde_json::from_str(&sandbox.succeed(["stat", "--json", place])).unwrap();
        stat[0].clone()
    };
    let made = stat("vol:/file");
    assert_eq!(made["birth"], made["changed"]);
    sandbox.succeed(["touch", "-d", "@7", "vol:/file"]);
    let touched = stat("vol:/file");
    assert_eq!((&touched["birth"], &touched["modified"]["seconds"]), (&made["birth"], &7.into()));
    sandbox.succeed(["ln", "-s", "file", "vol:/link"]);
    let text = |place: &str, option: &str| {
        let text = sandbox.succeed(["stat", option, place]);
        text.lines().find(|line| line.starts_with("  birth      ")).expect("a row").to_owned()
    };
    assert_eq!(text("vol:/link", "-L"), text("vol:/file", "-L"));
}

#[test]
fn commands_print_json() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("dir")).unwrap();
    fs::write(sandbox.path("dir/file"), "12345").unwrap();
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&sandbox.succeed(arguments.iter().chain(&["--json"]))).unwrap()
    };
    assert_eq!(json(&["import", "dir", "vol:/dir"])["files"], 1);
    assert_eq!(json(&["ls", "vol:/dir"])[0]["size"], 5);
    assert_eq!(json(&["stat", "vol:/dir"])[0]["kind"], "directory");
    assert_eq!(json(&["info", "vol"])["size_bytes"], 64 << 20);
    assert_eq!(json(&["df", "vol"])[0]["volume"], "vol");
    assert_eq!(json(&["fsck", "vol"])["sound"], true);
    assert_eq!(json(&["export", "vol:/dir", "out"])["bytes"], 5);
}

#[test]
fn closed_pipe_is_no_error() {
    let sandbox = Sandbox::with_volume("64M");
    eyrie_testkit::tree_fixture::fill(&sandbox.path(""), 3000, 10).unwrap();
    fs::create_dir(sandbox.path("tree")).unwrap();
    for number in 0..17 {
        let name = format!("dir-{number}");
        fs::rename(sandbox.path(&name), sandbox.path("tree").join(name)).unwrap();
    }
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    for arguments in [["ls", "-laR"], ["ls", "-R"], ["tree", "-a"]] {
        let mut command = sandbox.command(arguments);
        let mut child = command.arg("vol:/").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn changes_are_complete_with_closed_output() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    for number in 0..1000 {
        fs::write(sandbox.path(format!("tree/{number:0>200}")), "").unwrap();
    }
    sandbox.succeed(["import", "-q", "tree", "vol:/tree"]);
    let change = |arguments: &[&str]| {
        let mut child =
            sandbox.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    };
    change(&["chmod", "-Rv", "0701", "vol:/tree"]);
    assert_eq!(sandbox.succeed(["ls", "-l", "vol:/tree"]).matches("-rwx-----x").count(), 1000);
    change(&["rm", "-rv", "vol:/tree"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "");
}

#[test]
fn closed_pipe_keeps_the_status_of_a_missing_file() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("large"), vec![b'x'; 4 << 20]).unwrap();
    sandbox.succeed(["cp", "large", "vol:/large"]);
    let mut command = sandbox.command(["cat", "vol:/none", "vol:/large"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn regression_change_is_complete_although_its_output_is_not() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("tree")).unwrap();
    // The names are longer than the buffer of the output.
    for number in 0..400 {
        fs::write(sandbox.path("tree").join(format!("{number:0>240}")), "").unwrap();
    }
    for arguments in [
        &["cp", "-rv", "tree", "vol:/"][..],
        &["chmod", "-Rv", "700", "vol:/tree"],
        &["rm", "-rv", "vol:/tree"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = sandbox.command(arguments).stdout(full).output().unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {complaints}");
        assert!(complaints.starts_with("eyrie: cannot write: standard output"), "{complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
    }
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "");
}

/// The exit status tells of damage, even if the report does not fit into a pipe or cannot be written.
#[test]
fn damage_is_in_the_status_of_a_scrub_without_output() {
    let sandbox = Sandbox::new();
    sandbox.succeed(["mkfs", "vol", "--size", "64M", "--medium", "paged", "--checksums"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = sandbox.command(["scrub", "vol"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(8), "the report of a sound volume is lost: {output:?}");
    fs::create_dir(sandbox.path("tree")).unwrap();
    for number in 0..400 {
        let name = format!("{number:0>240}");
        fs::write(sandbox.path("tree").join(name), [0xab; 4096]).unwrap();
    }
    sandbox.succeed(["import", "tree", "vol:/tree"]);
    crate::errors::damage_pages_of(&sandbox, 0xab);
    let scrub = || {
        let mut command = sandbox.command(["scrub", "--json", "vol"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let report = scrub().wait_with_output().unwrap();
    assert_eq!(report.status.code(), Some(4));
    assert!(report.stdout.len() > 64 << 10, "the report fits a buffer: {} bytes", report.stdout.len());
    let mut closed = scrub();
    drop(closed.stdout.take());
    assert_eq!(closed.wait().unwrap().code(), Some(4));
    let mut command = sandbox.command(["scrub", "--json", "vol"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(complaints.contains("cannot write: standard output"), "{complaints}");
}

#[test]
fn tour_refuses_a_volume_inside_its_directory() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    std::os::unix::fs::symlink("tree", sandbox.path("link")).unwrap();
    for place in ["tree/vol", "link/vol"] {
        sandbox.fail(1, &["tree", "inside"], ["tour", "tree", "--volume", place]);
        assert!(!sandbox.path(place).exists());
    }
}

#[test]
fn regression_tour_of_huge_sparse_files_has_no_room() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    for name in ["one", "two"] {
        let file = fs::File::create(sandbox.path("tree").join(name)).unwrap();
        file.set_len(i64::MAX as u64).unwrap();
    }
    sandbox.fail(1, &["not enough room", "name a smaller directory"], ["tour", "tree"]);
}

#[test]
fn regression_tour_without_a_reader_names_its_volume() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    let tour = |flags: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = sandbox.command(["tour", "tree", "--volume", "vol", "--seconds", "1"]);
        let output = command.args(flags).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(tour(&["--remove"]), "");
    assert!(!sandbox.path("vol").exists());
    for flags in [&[][..], &["--json"]] {
        let line = tour(flags);
        assert!(line.lines().count() == 1 && line.contains(": vol: the volume stays"), "{line}");
        sandbox.succeed(["fsck", "vol"]);
        fs::remove_dir_all(sandbox.path("vol")).unwrap();
    }
}

#[test]
fn tour_verifies_and_measures() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    eyrie_testkit::tree_fixture::fill(&sandbox.path("tree"), 200, 9000).unwrap();
    let text = sandbox.succeed(["tour", "tree", "--volume", "vol", "--seconds", "1"]);
    for word in
        ["every byte and attribute equal", "every byte equal", "sound", "overwrite", "eyrie fsck", "×"]
    {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "copy\nstore\n");
    assert_eq!(fs::read_dir(sandbox.path(".")).unwrap().count(), 2, "only the tree and the volume stay");
    assert!(!sandbox.path("vol-host").exists());
    sandbox.fail(1, &["vol", "already"], ["tour", "tree", "--volume", "vol"]);
    sandbox.fail(1, &["vol", "already"], ["tour", "tree", "--volume", "vol", "--remove"]);
    assert!(sandbox.path("vol").exists(), "the tour must not remove a volume that it did not make");
    // The measurements make files in a directory of this name. The copy of the user's directory must not mix
    // with them.
    fs::create_dir(sandbox.path("bench-0")).unwrap();
    fs::write(sandbox.path("bench-0/large"), "mine").unwrap();
    sandbox.succeed(["tour", "bench-0", "--volume", "other", "--seconds", "1"]);
    assert_eq!(
        sandbox.succeed(["ls", "other:/", "other:/copy"]),
        "other:/:\ncopy\nstore\n\nother:/copy:\nlarge\n"
    );
    assert_eq!(sandbox.succeed(["cat", "other:/copy/large"]), "mine");
    let text = sandbox.succeed(["tour", "tree", "--volume", "new", "--seconds", "1", "--json", "--remove"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = json["measurements"].as_array().unwrap();
    assert_eq!(rows.len(), 17);
    for row in rows {
        let is_of_host = row["operation"] != "get in place, of 1,000";
        assert_eq!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), is_of_host, "{row}");
        assert!(row["touched"].as_u64().unwrap() > 0, "{row}");
    }
    assert!(!sandbox.path("new").exists());
}
