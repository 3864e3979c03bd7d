//! Tests of `diff`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use eyrie::{Credentials, PosixExt, Volume};
use serde_json::{Value, json};

use crate::{Sandbox, is_root};

/// Makes a directory `tree` of the host, and a volume with an equal tree.
fn sandbox_with_trees() -> Sandbox {
    let sandbox = Sandbox::with_volume("64M");
    fs::create_dir_all(sandbox.path("tree/dir/inner")).unwrap();
    for (path, bytes) in [("a", "one"), ("dir/b", "two"), ("dir/inner/c", "three"), ("dir-x", "four")] {
        fs::write(sandbox.path("tree").join(path), bytes).unwrap();
    }
    symlink("a", sandbox.path("tree/link")).unwrap();
    sandbox.succeed(["import", "-q", "tree", "vol:/tree"]);
    sandbox
}

/// Runs `diff` with these arguments, which must find differences. Returns the printed lines.
fn lines(sandbox: &Sandbox, arguments: &[&str]) -> Vec<String> {
    let output = sandbox.run([&["diff"][..], arguments].concat());
    assert_eq!((output.status.code(), output.stderr.len()), (Some(1), 0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn equal_trees_have_no_differences() {
    let sandbox = sandbox_with_trees();
    for places in [["vol:/tree", "tree"], ["tree", "vol:/tree"], ["vol:/tree", "vol:/tree"]] {
        assert_eq!(sandbox.succeed([&["diff"][..], &places].concat()), "");
        assert_eq!(sandbox.succeed([&["diff", "--json"][..], &places].concat()).trim(), "[]");
    }
    sandbox.succeed(["mkfs", "other", "--size", "64M"]);
    sandbox.succeed(["cp", "-a", "vol:/tree", "other:/copy"]);
    assert_eq!(sandbox.succeed(["diff", "vol:/tree", "other:/copy"]), "");
    // A hole equals zeros, and times are not compared.
    sandbox.succeed(["truncate", "-s", "1M", "vol:/tree/hole"]);
    fs::write(sandbox.path("tree/hole"), vec![0; 1 << 20]).unwrap();
    let touched = sandbox.command(["touch", "-d", "@5", "vol:/tree/a"]).status().unwrap();
    assert!(touched.success());
    assert_eq!(sandbox.succeed(["diff", "--contents", "vol:/tree", "tree"]), "");
}

#[test]
fn each_difference_is_one_line() {
    let sandbox = sandbox_with_trees();
    fs::write(sandbox.path("tree/a"), "own").unwrap();
    fs::remove_file(sandbox.path("tree/dir/b")).unwrap();
    fs::write(sandbox.path("tree/dir/new"), "new").unwrap();
    fs::write(sandbox.path("tree/dir-x"), "longer than four").unwrap();
    sandbox.succeed(["chmod", "600", "vol:/tree/dir-x"]);
    sandbox.succeed(["chmod", "700", "vol:/tree/dir/inner"]);
    sandbox.succeed(["ln", "-sfn", "dir", "vol:/tree/link"]);
    sandbox.succeed(["xattr", "set", "vol:/tree/dir/inner/c", "user.a", "b"]);
    sandbox.succeed(["mkdir", "-p", "vol:/tree/only/deep"]);
    sandbox.succeed(["touch", "vol:/tree/only/deep/file", "vol:/tree/kind"]);
    fs::create_dir_all(sandbox.path("tree/kind/inside")).unwrap();
    let expected = [
        "vol:/tree/a and tree/a differ: contents",
        "Only in vol:/tree/dir: b",
        "vol:/tree/dir/inner and tree/dir/inner differ: mode",
        "vol:/tree/dir/inner/c and tree/dir/inner/c differ: xattrs",
        "Only in tree/dir: new",
        "vol:/tree/dir-x and tree/dir-x differ: mode, size",
        "vol:/tree/kind and tree/kind differ: type",
        "vol:/tree/link and tree/link differ: target",
        "Only in vol:/tree: only",
    ];
    assert_eq!(lines(&sandbox, &["vol:/tree", "tree"]), expected);
    let contents = lines(&sandbox, &["--contents", "vol:/tree", "tree"]);
    assert_eq!(contents.len(), 7, "{contents:?}");
    assert!(contents.contains(&"vol:/tree/dir-x and tree/dir-x differ: size".to_owned()), "{contents:?}");
    assert!(lines(&sandbox, &["-q", "vol:/tree", "tree"]).is_empty());

    let output = sandbox.run(["diff", "--json", "vol:/tree", "tree"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), all.as_array().unwrap().len()), (Some(1), expected.len()));
    assert_eq!(all[0], json!({ "path": "a", "differ": ["contents"] }));
    assert_eq!(all[1], json!({ "path": "dir/b", "only_in": "first" }));
    assert_eq!(all[4], json!({ "path": "dir/new", "only_in": "second" }));
    assert_eq!(lines(&sandbox, &["vol:/tree/a", "tree/a"]), ["vol:/tree/a and tree/a differ: contents"]);
    if is_root() {
        sandbox.succeed(["chown", "1:2", "vol:/tree/kind"]);
        sandbox.succeed(["rm", "-r", "vol:/tree/only"]);
        fs::remove_dir_all(sandbox.path("tree/kind")).unwrap();
        sandbox.succeed(["cp", "vol:/tree/kind", "tree/kind"]);
        sandbox.succeed(["chown", "1:3", "vol:/tree/kind"]);
        let lines = lines(&sandbox, &["vol:/tree", "tree"]);
        assert!(lines.contains(&"vol:/tree/kind and tree/kind differ: owner".to_owned()), "{lines:?}");
    }
}

#[test]
fn trouble_has_a_status_of_its_own() {
    let sandbox = sandbox_with_trees();
    sandbox.fail(3, &["vol:/none", "check the spelling"], ["diff", "vol:/none", "tree"]);
    sandbox.fail(3, &["none", "check the spelling"], ["diff", "vol:/tree", "none"]);
    sandbox.fail(3, &["none", "eyrie mkfs"], ["diff", "none:/", "tree"]);
    let held = Volume::open(sandbox.path("vol")).unwrap();
    sandbox.fail(2, &["vol", "in use by process"], ["diff", "vol:/tree", "tree"]);
    held.close().unwrap();
    sandbox.fail(2, &["--quiet", "--json"], ["diff", "-q", "--json", "vol:/tree", "tree"]);
    assert_eq!(sandbox.run(["diff", "vol:/tree"]).status.code(), Some(2));
    fs::write(sandbox.path("tree/a"), "own").unwrap();
    for arguments in [&["diff", "vol:/tree", "tree"][..], &["diff", "--json", "vol:/tree", "tree"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let unwritten = sandbox.command(arguments).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&unwritten.stderr);
        assert_eq!(unwritten.status.code(), Some(2), "{unwritten:?}");
        assert!(told.contains("cannot write: standard output") && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn status_of_a_difference_does_not_need_a_reader() {
    let sandbox = sandbox_with_trees();
    // The differences have more lines than fit into the buffer of the output and the pipe.
    fs::create_dir(sandbox.path("tree/many")).unwrap();
    for number in 0..2000 {
        fs::write(sandbox.path(format!("tree/many/{}{number}", "n".repeat(200))), "").unwrap();
    }
    fs::create_dir(sandbox.path("empty")).unwrap();
    let status_without_reader = |places: [&str; 2], option: &str| {
        let mut command = sandbox.command(["diff", option, places[0], places[1]]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stderr, b"", "{output:?}");
        output.status.code()
    };
    sandbox.succeed(["mkdir", "vol:/tree/many"]);
    for option in ["--contents", "--json"] {
        assert_eq!(status_without_reader(["vol:/tree", "tree"], option), Some(1));
        assert_eq!(status_without_reader(["vol:/tree/a", "tree/a"], option), Some(0));
    }
}

#[test]
fn sparse_files_differ_only_in_their_data() {
    const TIB: u64 = 1 << 40;
    let sandbox = Sandbox::with_volume("16M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    for (dir, tail) in [("/one", "x"), ("/same", "x"), ("/other", "y")] {
        files.create_dir(dir).unwrap();
        let file = files.create_file(format!("{dir}/file")).unwrap();
        file.write_all_at(tail.as_bytes(), 5 * TIB).unwrap();
        // A range of zeros equals a hole.
        if dir == "/same" {
            file.write_all_at(&[0; 10_000], TIB).unwrap();
        }
        file.set_len(1 << 62).unwrap();
    }
    drop(files);
    volume.close().unwrap();
    for dirs in [["vol:/one", "vol:/same"], ["vol:/same", "vol:/one"]] {
        assert_eq!(sandbox.succeed([&["diff"][..], &dirs].concat()), "");
    }
    for dirs in [["vol:/one", "vol:/other"], ["vol:/other", "vol:/same"]] {
        let expected = format!("{}/file and {}/file differ: contents", dirs[0], dirs[1]);
        assert_eq!(lines(&sandbox, &dirs), [expected]);
    }
}
