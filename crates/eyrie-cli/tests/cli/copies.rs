//! Tests of `cp` and `mv` with the flags of the GNU commands.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::Sandbox;
use crate::served::Service;

/// Writes a file and sets its modification time, in seconds.
fn write(path: &Path, text: &str, seconds: u64) {
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn cp_keeps_or_updates_existing_files() {
    let sandbox = Sandbox::with_volume("64M");
    write(&sandbox.path("file"), "first", 1000);
    sandbox.succeed(["cp", "file", "vol:/file"]);
    write(&sandbox.path("file"), "second", 2000);
    sandbox.succeed(["cp", "-n", "file", "vol:/file"]);
    sandbox.succeed(["cp", "-nfu", "file", "vol:/"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/file"]), "first");
    sandbox.succeed(["cp", "-u", "file", "vol:/file"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/file"]), "second");
    write(&sandbox.path("file"), "older", 1500);
    sandbox.succeed(["cp", "-u", "file", "vol:/file"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/file"]), "second");
    sandbox.succeed(["cp", "-n", "file", "vol:/new"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/new"]), "older");
    // A directory of the same name stays, too.
    sandbox.succeed(["mkdir", "vol:/dir"]);
    write(&sandbox.path("dir"), "old", 1000);
    for flag in ["-n", "-u"] {
        sandbox.succeed(["cp", flag, "dir", "vol:/"]);
    }
    sandbox.fail(1, &["vol:/dir", "it is a directory"], ["cp", "dir", "vol:/"]);
    // A file that nobody may write is replaced, too.
    sandbox.succeed(["chmod", "000", "vol:/file"]);
    sandbox.succeed(["cp", "-pf", "file", "vol:/file"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/file"]), "older");
}

#[test]
fn cp_copies_into_existing_directories() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir_all(sandbox.path("dir/inner/deep")).unwrap();
    write(&sandbox.path("dir/inner/old"), "old", 1000);
    write(&sandbox.path("dir/inner/kept"), "kept", 3000);
    sandbox.succeed(["cp", "-R", "dir", "vol:/"]);
    write(&sandbox.path("dir/inner/old"), "changed", 2000);
    write(&sandbox.path("dir/inner/kept"), "older", 2000);
    write(&sandbox.path("dir/inner/deep/new"), "new", 1000);
    fs::set_permissions(sandbox.path("dir/inner"), fs::Permissions::from_mode(0o751)).unwrap();
    let has_mode = || sandbox.succeed(["stat", "vol:/dir/inner"]).contains(" 0751 ");
    sandbox.succeed(["cp", "-ru", "dir", "vol:/"]);
    let all = |names: &[&str]| sandbox.succeed(["cat"].iter().chain(names));
    assert_eq!(
        all(&["vol:/dir/inner/old", "vol:/dir/inner/kept", "vol:/dir/inner/deep/new"]),
        "changedkeptnew"
    );
    assert!(!has_mode(), "without -a an existing directory must keep its attributes");
    sandbox.succeed(["cp", "-a", "dir", "vol:/"]);
    assert_eq!(all(&["vol:/dir/inner/kept"]), "older");
    assert!(has_mode());
    // A directory and a file do not replace each other. The other entries are copied.
    fs::write(sandbox.path("dir/inner/clash"), "").unwrap();
    fs::write(sandbox.path("dir/later"), "later").unwrap();
    sandbox.succeed(["mkdir", "vol:/dir/inner/clash"]);
    sandbox.fail(1, &["vol:/dir/inner/clash", "directory"], ["cp", "-r", "dir", "vol:/"]);
    assert_eq!(all(&["vol:/dir/later"]), "later");
    sandbox.fail(1, &["vol:/dir", "same directory"], ["cp", "-r", "vol:/dir", "vol:/"]);
}

#[test]
fn cp_refuses_to_copy_a_directory_into_itself() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/dir/sub"]);
    sandbox.succeed(["ln", "-s", "dir", "vol:/link"]);
    sandbox.succeed(["ln", "-s", "dir/sub", "vol:/deep"]);
    fs::create_dir_all(sandbox.path("dir/sub")).unwrap();
    symlink("dir", sandbox.path("link")).unwrap();
    symlink("dir/sub", sandbox.path("deep")).unwrap();
    for base in ["vol:/", ""] {
        let [dir, link, deep] = ["dir", "link", "deep"].map(|name| format!("{base}{name}"));
        for target in [&dir, &link, &deep, &format!("{link}/new"), &format!("{deep}/..")] {
            sandbox.fail(1, &[&dir, "is inside it"], ["cp", "-r", &dir, target]);
        }
        // A directory beside the source may have a longer form of its name, or be reached through the source.
        sandbox.succeed(["cp", "-r", &dir, &format!("{dir}-copy")]);
        sandbox.succeed(["cp", "-r", &dir, &format!("{deep}/../../other")]);
        sandbox.succeed(["diff", &format!("{base}other"), &format!("{base}dir-copy")]);
    }
    assert_eq!(sandbox.succeed(["ls", "vol:/dir"]), "sub\n");
    assert_eq!(sandbox.succeed(["ls", "vol:/dir/sub"]), "");
    assert_eq!(fs::read_dir(sandbox.path("dir/sub")).unwrap().count(), 0);
}

#[test]
fn regression_storage_of_a_volume_is_no_part_of_a_copy() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("data")).unwrap();
    fs::write(sandbox.path("data/file"), "file").unwrap();
    sandbox.succeed(["mkfs", "data/vol", "--size", "64M"]);
    // A move would remove the volume to which it has moved the files.
    sandbox.fail(1, &["data: it contains the storage"], ["mv", "data", "data/vol:/moved"]);
    for command in ["cp", "mv"] {
        sandbox.fail(1, &["storage of the target"], [command, "data/vol/segment-0000", "data/vol:/"]);
        sandbox.fail(1, &["own storage"], [command, "data/vol:/file", "data/vol/segment-0000"]);
    }
    sandbox.fail(1, &["data/vol: this is the storage"], ["cp", "-r", "data/vol", "data/vol:/new"]);
    sandbox.fail(1, &["own storage"], ["import", "data/vol", "data/vol:/new"]);
    assert_eq!(sandbox.succeed(["ls", "data/vol:/"]), "");
    // The first run makes a new copy, and the second run merges the directory into this copy.
    for _ in 0..2 {
        sandbox.succeed(["cp", "-r", "data", "data/vol:/"]);
        assert_eq!(sandbox.succeed(["ls", "data/vol:/data"]), "file\n");
    }
    // A link to the storage is copied.
    fs::create_dir(sandbox.path("data/links")).unwrap();
    symlink("../vol", sandbox.path("data/links/vol")).unwrap();
    sandbox.succeed(["mkdir", "data/vol:/data/links"]);
    sandbox.succeed(["cp", "-r", "data", "data/vol:/"]);
    assert_eq!(sandbox.succeed(["ls", "data/vol:/data/links"]), "vol\n");
    sandbox.succeed(["mkdir", "data/vol:/vol", "data/vol:/data/vol"]);
    sandbox.succeed(["touch", "data/vol:/vol/segment-0000", "data/vol:/data/vol/segment-0000"]);
    sandbox.fail(1, &["own storage"], ["cp", "-r", "data/vol:/vol", "data"]);
    sandbox.fail(1, &["data/vol: this is the storage"], ["cp", "-r", "data/vol:/data", "."]);
    sandbox.succeed(["fsck", "data/vol"]);
}

#[test]
fn regression_socket_and_directory_of_a_volume_are_one_volume() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "kept").unwrap();
    sandbox.succeed(["cp", "file", "vol:/file"]);
    let service = Service::start(&sandbox);
    // Otherwise the move would copy the file over itself, and then remove it.
    sandbox.fail(1, &["same file"], ["mv", "vol:/file", "vol/service.sock:/file"]);
    assert_eq!(sandbox.succeed(["cat", "vol/service.sock:/file"]), "kept");
    sandbox.succeed(["ln", "vol:/file", "vol/service.sock:/second"]);
    sandbox.fail(1, &["storage of the target"], ["cp", "-r", "vol", "vol/service.sock:/new"]);
    sandbox.fail(1, &["own storage"], ["import", "vol", "vol/service.sock:/new"]);
    sandbox.fail(1, &["own storage"], ["dump", "vol/service.sock:/", "-o", "vol/archive"]);
    sandbox.succeed(["cp", "-r", ".", "vol/service.sock:/copied"]);
    sandbox.succeed(["import", ".", "vol/service.sock:/imported"]);
    for copy in ["copied", "imported"] {
        assert_eq!(sandbox.succeed(["ls", "-a", &format!("vol:/{copy}")]), "file\n");
    }
    service.stop();
}

#[test]
fn cp_prints_pairs_and_continues() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("dir")).unwrap();
    fs::write(sandbox.path("dir/file"), "file").unwrap();
    fs::write(sandbox.path("one"), "one").unwrap();
    assert_eq!(sandbox.succeed(["cp", "-v", "one", "vol:/"]), "'one' -> 'vol:/one'\n");
    assert_eq!(sandbox.succeed(["cp", "-v", "one", "vol:/"]), "'one' -> 'vol:/one'\n");
    assert_eq!(sandbox.succeed(["cp", "-nv", "one", "vol:/"]), "");
    let told = sandbox.succeed(["cp", "-rv", "dir", "vol:/new"]);
    assert_eq!(told, "'dir/file' -> 'vol:/new/file'\n'dir' -> 'vol:/new'\n");
    assert_eq!(sandbox.succeed(["cp", "-v", "vol:/one", "two"]), "'vol:/one' -> 'two'\n");
    // A name is escaped once.
    fs::write(sandbox.path("back\\slash"), "").unwrap();
    let told = r"'back\\slash' -> 'vol:/back\\slash'";
    assert_eq!(sandbox.succeed(["cp", "-v", r"back\slash", "vol:/"]).trim_end(), told);
    let output = sandbox.run(["cp", "missing", "two", "vol:/"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(sandbox.succeed(["cat", "vol:/two"]), "one");
}

#[test]
fn cp_and_mv_continue_after_sources_that_cannot_be_opened() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("dir")).unwrap();
    for name in ["one", "two", "three"] {
        fs::write(sandbox.path(name), name).unwrap();
    }
    sandbox.fail(1, &["no name of its own: vol:/"], ["cp", "-r", "vol:/", "one", "dir/"]);
    // cp(1) would copy the entries of the directory, and not make `vol:/dir`.
    for source in ["dir/.", "./dir/.//", "dir/.."] {
        sandbox.fail(1, &["no name of its own: ", source], ["cp", "-r", source, "vol:/"]);
    }
    let output = sandbox.run(["cp", "none:/x", "one", "vol:/y", "two", "vol:/"]);
    let lines = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), lines.lines().count()), (Some(3), 2), "{lines}");
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "one\ntwo\n");
    assert_eq!(fs::read(sandbox.path("dir/one")).unwrap(), b"one");
    sandbox.fail(3, &["none"], ["mv", "none:/x", "three", "vol:/"]);
    assert!(!sandbox.path("three").exists());
    // A target that cannot take the copies ends the command at once.
    sandbox.fail(2, &["vol:/one", "several sources need a directory"], ["cp", "one", "two", "vol:/one"]);
    sandbox.fail(3, &["none"], ["cp", "one", "two", "none:/"]);
}

#[test]
fn mv_keeps_files_on_demand_and_prints() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("host"), "host").unwrap();
    sandbox.succeed(["cp", "host", "vol:/a"]);
    sandbox.succeed(["touch", "vol:/b"]);
    // With -n, neither a rename nor a copy replaces a file.
    sandbox.succeed(["mv", "-nv", "vol:/a", "vol:/b"]);
    sandbox.succeed(["mv", "-fn", "host", "vol:/b"]);
    assert!(sandbox.path("host").exists());
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "a\nb\n");
    assert_eq!(sandbox.succeed(["cat", "vol:/b"]), "");
    // If `mv` gets both -n and -f, the later one of the two is used.
    let told = sandbox.succeed(["mv", "-n", "-f", "-v", "vol:/a", "vol:/b"]);
    assert_eq!(told, "renamed 'vol:/a' -> 'vol:/b'\n");
    assert_eq!(sandbox.succeed(["cat", "vol:/b"]), "host");
    let told = sandbox.succeed(["mv", "-v", "host", "vol:/c"]);
    assert_eq!(told, "'host' -> 'vol:/c'\nremoved 'host'\n");
    assert!(!sandbox.path("host").exists());
    let output = sandbox.run(["mv", "vol:/none", "vol:/c", "."]);
    assert!(!output.status.success());
    assert!(sandbox.path("c").exists());
}

#[test]
fn regression_second_source_of_one_name_does_not_replace_the_first() {
    let sandbox = Sandbox::with_volume("64M");
    for (dir, kept) in [("a", "of a"), ("b", "of b")] {
        fs::create_dir_all(sandbox.path(dir).join("tree")).unwrap();
        fs::write(sandbox.path(dir).join("x"), kept).unwrap();
        fs::write(sandbox.path(dir).join("tree").join(dir), kept).unwrap();
    }
    sandbox.succeed(["mkdir", "vol:/dir", "vol:/moved"]);
    sandbox.fail(1, &["vol:/dir/x", "earlier source"], ["cp", "a/x", "b/x", "vol:/dir"]);
    sandbox.succeed(["cp", "-n", "a/x", "b/x", "vol:/dir"]);
    sandbox.succeed(["cp", "a/x", "./a/x", "vol:/dir"]);
    // The first source is missing, so nothing is lost. Directories with one name are merged.
    sandbox.fail(3, &["none/x"], ["cp", "none/x", "a/x", "vol:/dir"]);
    sandbox.succeed(["cp", "-r", "a/tree", "b/tree", "vol:/dir"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/dir/tree"]), "a\nb\n");
    assert_eq!(sandbox.succeed(["cat", "vol:/dir/x"]), "of a");
    sandbox.succeed(["cp", "-r", "a", "b", "vol:/"]);
    sandbox.fail(1, &["vol:/moved/x", "earlier source"], ["mv", "vol:/a/x", "vol:/b/x", "vol:/moved"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/moved/x", "vol:/b/x"]), "of aof b");
    sandbox.fail(1, &["vol:/x", "earlier source"], ["mv", "a/x", "b/x", "vol:/"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/x"]), "of a");
    assert!(sandbox.path("b/x").exists());
}

#[test]
fn regression_second_tree_of_one_name_keeps_the_files_of_the_first() {
    let sandbox = Sandbox::with_volume("64M");
    for dir in ["a", "b"] {
        fs::create_dir_all(sandbox.path(dir).join("tree/sub")).unwrap();
        fs::write(sandbox.path(dir).join("tree/sub/both"), dir).unwrap();
        fs::write(sandbox.path(dir).join("tree").join(dir), dir).unwrap();
    }
    sandbox.succeed(["mkdir", "-p", "vol:/new", "vol:/old/tree/sub"]);
    sandbox.succeed(["touch", "vol:/old/tree/sub/both"]);
    for target in ["vol:/new", "vol:/old"] {
        let (tree, both) = (format!("{target}/tree"), format!("{target}/tree/sub/both"));
        sandbox.fail(1, &[&both, "earlier source"], ["cp", "-r", "a/tree", "b/tree", target]);
        assert_eq!(sandbox.succeed(["cat", &both]), "a");
        assert_eq!(sandbox.succeed(["ls", &tree]), "a\nb\nsub\n");
        // A source that is named again has its copy already.
        sandbox.succeed(["cp", "-rn", "a/tree", "b/tree", "a/tree", target]);
    }
}

#[test]
fn regression_second_source_replaces_a_file_that_the_first_has_kept() {
    let sandbox = Sandbox::with_volume("64M");
    for dir in ["a", "b"] {
        fs::create_dir(sandbox.path(dir)).unwrap();
    }
    write(&sandbox.path("x"), "old", 2000);
    write(&sandbox.path("a/x"), "of a", 1000);
    write(&sandbox.path("b/x"), "of b", 3000);
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.succeed(["cp", "x", "vol:/dir"]);
    sandbox.succeed(["cp", "-u", "a/x", "b/x", "vol:/dir"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/dir/x"]), "of b");
    write(&sandbox.path("a/x"), "newer", 4000);
    write(&sandbox.path("b/x"), "newest", 5000);
    sandbox.fail(1, &["vol:/dir/x", "earlier source"], ["cp", "-u", "a/x", "b/x", "vol:/dir"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/dir/x"]), "newer");
}

#[test]
fn regression_move_to_another_name_of_a_file_removes_the_first_name() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("one"), "one").unwrap();
    fs::hard_link(sandbox.path("one"), sandbox.path("two")).unwrap();
    fs::create_dir(sandbox.path("dir")).unwrap();
    sandbox.succeed(["import", ".", "vol:/all"]);
    for base in ["vol:/all/", "./"] {
        let [one, two] = ["one", "two"].map(|name| format!("{base}{name}"));
        sandbox.succeed(["mv", "-n", &one, &two]);
        sandbox.fail(1, &["same file"], ["mv", &one, &one]);
        sandbox.fail(1, &["same file"], ["mv", &one, base]);
        sandbox.fail(1, &["same file"], ["mv", &format!("{base}dir"), base]);
        let told = sandbox.succeed(["mv", "-v", &one, &two]);
        assert_eq!(told, format!("renamed '{one}' -> '{two}'\n"));
    }
    assert_eq!(sandbox.succeed(["ls", "vol:/all"]), "dir\ntwo\n");
    assert!(!sandbox.path("one").exists() && fs::read(sandbox.path("two")).unwrap() == b"one");
}

#[test]
fn regression_second_source_does_not_replace_a_moved_hard_link() {
    let sandbox = Sandbox::with_volume("64M");
    for dir in ["a", "b", "to"] {
        fs::create_dir(sandbox.path(dir)).unwrap();
    }
    fs::write(sandbox.path("a/x"), "of a").unwrap();
    fs::hard_link(sandbox.path("a/x"), sandbox.path("to/x")).unwrap();
    fs::write(sandbox.path("b/x"), "of b").unwrap();
    sandbox.succeed(["import", ".", "vol:/all"]);
    for base in ["vol:/all/", "./"] {
        let [first, second, to] = ["a/x", "b/x", "to"].map(|name| format!("{base}{name}"));
        sandbox.fail(1, &["to/x", "earlier source"], ["mv", &first, &second, &to]);
    }
    assert_eq!(sandbox.succeed(["cat", "vol:/all/to/x", "vol:/all/b/x"]), "of aof b");
    assert_eq!(fs::read(sandbox.path("to/x")).unwrap(), b"of a");
    assert!(!sandbox.path("a/x").exists() && sandbox.path("b/x").exists());
}

#[test]
fn regression_file_is_not_copied_over_itself() {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir(sandbox.path("dir")).unwrap();
    fs::write(sandbox.path("dir/file"), "kept").unwrap();
    symlink("dir", sandbox.path("link")).unwrap();
    sandbox.succeed(["import", ".", "vol:/all"]);
    for base in ["vol:/all/", "./"] {
        let [file, same, second] =
            ["dir/file", "link/file", "dir/second"].map(|name| format!("{base}{name}"));
        sandbox.fail(1, &[&file, "same file"], ["cp", &file, &file]);
        sandbox.fail(1, &[&file, "same file"], ["cp", &file, &same]);
        sandbox.succeed(["cp", &file, &second]);
        sandbox.succeed(["cp", &second, &same]);
    }
}

#[test]
fn regression_link_does_not_replace_its_target() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "kept").unwrap();
    fs::hard_link(sandbox.path("file"), sandbox.path("second")).unwrap();
    symlink("file", sandbox.path("link")).unwrap();
    sandbox.succeed(["import", ".", "vol:/all"]);
    for base in ["vol:/all/", "./"] {
        let [link, file, second] = ["link", "file", "second"].map(|name| format!("{base}{name}"));
        sandbox.fail(1, &[&link, "is a link to"], ["mv", &link, &file]);
        // The link may replace another name of the file.
        sandbox.succeed(["cp", &link, &second]);
        sandbox.fail(1, &[&link, "is a link to"], ["cp", &link, &file]);
        sandbox.fail(1, &[&link, "is a link to"], ["mv", &link, &file]);
        sandbox.succeed(["diff", "vol:/all/file", &file]);
        // A link may replace another link, and -n replaces nothing.
        let other = format!("{base}other");
        sandbox.succeed(["cp", &link, &other]);
        sandbox.succeed(["mv", &link, &other]);
        sandbox.succeed(["cp", "-n", &other, &file]);
        sandbox.succeed(["mv", "-n", &other, &file]);
    }
    assert_eq!(sandbox.succeed(["cat", "vol:/all/file"]), "kept");
    assert_eq!(fs::read(sandbox.path("file")).unwrap(), b"kept");
}

#[test]
fn regression_file_does_not_replace_a_pipe_of_the_host() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), "file").unwrap();
    sandbox.succeed(["cp", "file", "vol:/file"]);
    assert!(Command::new("mkfifo").arg(sandbox.path("pipe")).status().unwrap().success());
    symlink("pipe", sandbox.path("link")).unwrap();
    for target in ["pipe", "link"] {
        sandbox.fail(1, &[target, "it is a fifo"], ["cp", "vol:/file", target]);
        sandbox.fail(1, &[target, "it is a fifo"], ["cp", "-f", "file", target]);
        // The file is older than the pipe and the link, so -u keeps them.
        sandbox.succeed(["cp", "-u", "vol:/file", target]);
        sandbox.succeed(["cp", "-n", "vol:/file", target]);
        assert!(fs::metadata(sandbox.path(target)).unwrap().file_type().is_fifo());
    }
    symlink("/proc/self/exe", sandbox.path("open")).unwrap();
    sandbox.fail(1, &["open", "it is a link to an open file"], ["cp", "vol:/file", "open"]);
    assert_eq!(fs::read_link(sandbox.path("open")).unwrap(), Path::new("/proc/self/exe"));
    // A copied tree replaces no pipe, either.
    fs::create_dir(sandbox.path("dir")).unwrap();
    assert!(Command::new("mkfifo").arg(sandbox.path("dir/inner")).status().unwrap().success());
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.succeed(["cp", "file", "vol:/dir/inner"]);
    sandbox.fail(1, &["dir/inner", "it is a fifo"], ["cp", "-r", "vol:/dir", "."]);
    // As with cp -a, a pipe replaces a pipe.
    sandbox.succeed(["cp", "pipe", "vol:/pipe"]);
    sandbox.succeed(["cp", "vol:/pipe", "pipe"]);
}

/// Returns the field `incompat` of the superblock.
fn incompatible_features(sandbox: &Sandbox) -> u64 {
    let mut bytes = [0; 8];
    fs::File::open(sandbox.path("vol/segment-0000")).unwrap().read_exact_at(&mut bytes, 56).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn cp_shares_storage_inside_a_volume() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("file"), vec![7; 8 << 20]).unwrap();
    sandbox.succeed(["cp", "file", "vol:/file"]);
    let used = || {
        let space: serde_json::Value =
            serde_json::from_str(&sandbox.succeed(["df", "--json", "vol"])).unwrap();
        space[0]["used_bytes"].as_u64().unwrap()
    };
    sandbox.succeed(["cp", "--reflink=never", "vol:/file", "vol:/first"]);
    assert_eq!(incompatible_features(&sandbox) & 1 << 5, 0, "no file shares storage yet");
    let before = used();
    sandbox.succeed(["cp", "vol:/file", "vol:/auto"]);
    assert_ne!(incompatible_features(&sandbox) & 1 << 5, 0);
    sandbox.succeed(["cp", "--reflink=always", "vol:/file", "vol:/always"]);
    sandbox.succeed(["cp", "--reflink", "vol:/file", "vol:/again"]);
    assert!(used() - before < 1 << 20, "the copies share their storage");
    sandbox.succeed(["cp", "--reflink=never", "vol:/file", "vol:/never"]);
    assert!(used() - before >= 8 << 20, "this copy has storage of its own");
    for name in ["auto", "always", "again", "never"] {
        sandbox.succeed(["diff", "vol:/file", &format!("vol:/{name}")]);
    }
    // The host and the volume share no storage.
    let refused = sandbox.run(["cp", "--reflink=always", "file", "vol:/other"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(!sandbox.run(["stat", "vol:/other"]).status.success(), "no incomplete copy is left");
    sandbox.succeed(["fsck", "vol"]);
}
