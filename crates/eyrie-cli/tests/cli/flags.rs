//! Tests of `chattr` and `lsattr`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::Sandbox;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("NOT TESTED: only root sets flags");
    }
    is_root
}

#[test]
fn chattr_sets_flags_that_lsattr_shows() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.succeed(["touch", "vol:/dir/file"]);
    sandbox.succeed(["ln", "-s", "file", "vol:/dir/link"]);
    assert_eq!(sandbox.succeed(["lsattr", "-R", "vol:/dir"]), "-- vol:/dir\n-- vol:/dir/file\n");
    // A missing argument does not hide the others.
    let output = sandbox.run(["lsattr", "--json", "vol:/none", "vol:/dir/file"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json[0]["place"]), (Some(3), &"vol:/dir/file".into()));
    let place = OsStr::from_bytes(b"vol:/dir/\xfe\\");
    sandbox.succeed([OsStr::new("touch"), place]);
    let json = sandbox.succeed([OsStr::new("lsattr"), OsStr::new("--json"), place]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["place_hex"], "766f6c3a2f6469722ffe5c");
    sandbox.succeed([OsStr::new("rm"), place]);
    sandbox.fail(2, &["+x", "i and a"], ["chattr", "+x", "vol:/dir"]);
    sandbox.fail(3, &["vol:/none"], ["chattr", "+i", "vol:/none"]);
    if !is_root() {
        sandbox.fail(1, &["change the inode flags of", "vol:/dir"], ["chattr", "+i", "vol:/dir"]);
        return;
    }
    let told = sandbox.succeed(["chattr", "-v", "+i", "vol:/dir/link"]);
    assert_eq!(told, "flags of 'vol:/dir/link' set as i-\n");
    assert_eq!(sandbox.succeed(["lsattr", "vol:/dir/file"]), "i- vol:/dir/file\n");
    sandbox.fail(1, &["vol:/dir/file", "not permitted"], ["rm", "vol:/dir/file"]);
    sandbox.succeed(["chattr", "-R", "+a", "vol:/dir"]);
    assert_eq!(sandbox.succeed(["lsattr", "-R", "vol:/dir"]), "-a vol:/dir\nia vol:/dir/file\n");
    let json = sandbox.succeed(["lsattr", "--json", "vol:/dir/file"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["place"], "vol:/dir/file");
    assert_eq!((&json[0]["immutable"], &json[0]["append_only"]), (&true.into(), &true.into()));
    sandbox.succeed(["touch", "vol:/dir/more"]);
    sandbox.succeed(["fsck", "vol"]);
    sandbox.succeed(["chattr", "-R", "=", "vol:/dir"]);
    sandbox.succeed(["rm", "-r", "vol:/dir"]);
}

#[test]
fn regression_rm_names_the_file_that_stays_and_goes_on() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    for flags in [&["-r"][..], &["-rf"]] {
        sandbox.succeed(["mkdir", "-p", "vol:/tree/a", "vol:/tree/z"]);
        sandbox.succeed(["touch", "vol:/tree/a/file", "vol:/tree/m", "vol:/tree/z/file"]);
        sandbox.succeed(["chattr", "+i", "vol:/tree/m"]);
        sandbox.fail(1, &["vol:/tree/m", "not permitted"], ["rm"].iter().chain(flags).chain(&["vol:/tree"]));
        assert_eq!(sandbox.succeed(["ls", "vol:/tree"]), "m\n");
        sandbox.succeed(["chattr", "-i", "vol:/tree/m"]);
    }
}

#[test]
fn regression_rm_prints_no_second_error_for_the_directories_above() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/tree/fixed", "vol:/tree/z"]);
    sandbox.succeed(["touch", "vol:/tree/fixed/file", "vol:/tree/z/file"]);
    sandbox.succeed(["chattr", "+i", "vol:/tree/fixed"]);
    // Neither the file nor the directory `fixed` can be removed.
    sandbox.fail(1, &["vol:/tree/fixed/file", "not permitted"], ["rm", "-r", "vol:/tree"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/tree"]), "fixed\n");
}

#[test]
fn archives_keep_flags_and_copies_have_none() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    for name in ["fixed", "log"] {
        sandbox.succeed(["touch", &format!("vol:/dir/{name}")]);
    }
    sandbox.succeed(["ln", "vol:/dir/fixed", "vol:/dir/second"]);
    sandbox.succeed(["chattr", "+i", "vol:/dir/fixed", "vol:/dir"]);
    sandbox.succeed(["chattr", "+a", "vol:/dir/log"]);
    sandbox.succeed(["dump", "vol:/dir", "-o", "tree.tar"]);
    sandbox.succeed(["load", "vol:/loaded", "-i", "tree.tar"]);
    let shown = sandbox.succeed(["lsattr", "-R", "vol:/loaded"]);
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    let expected = ["-a vol:/loaded/log", "i- vol:/loaded", "i- vol:/loaded/fixed", "i- vol:/loaded/second"];
    assert_eq!(lines, expected);
    sandbox.succeed(["cp", "-r", "vol:/dir", "vol:/copied"]);
    let shown = sandbox.succeed(["lsattr", "-R", "vol:/copied"]);
    assert!(shown.lines().all(|line| line.starts_with("-- ")), "{shown}");
    sandbox.succeed(["rm", "-r", "vol:/copied"]);
}

#[test]
fn directory_in_the_place_of_a_later_file_keeps_its_flags() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/one", "vol:/one/name", "vol:/two"]);
    sandbox.succeed(["touch", "vol:/two/name"]);
    sandbox.succeed(["chattr", "+i", "vol:/one/name"]);
    sandbox.succeed(["dump", "vol:/one", "-o", "one.tar"]);
    sandbox.succeed(["dump", "vol:/two", "-o", "two.tar"]);
    // The first archive ends with blocks of zeros, at which a load would stop. The second archive takes their
    // place.
    let mut archive = fs::read(sandbox.path("one.tar")).unwrap();
    let end = archive.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    archive.truncate(end.next_multiple_of(512));
    archive.extend(fs::read(sandbox.path("two.tar")).unwrap());
    fs::write(sandbox.path("both.tar"), archive).unwrap();
    sandbox.complain(&["both.tar:/name"], ["load", "vol:/loaded", "-i", "both.tar"]);
    assert_eq!(sandbox.succeed(["lsattr", "-R", "vol:/loaded"]), "-- vol:/loaded\ni- vol:/loaded/name\n");
}
