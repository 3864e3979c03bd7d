//! Tests of `touch`, `truncate`, `chmod`, `chown`, `rm` and `ln` with the flags of the GNU commands.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{Sandbox, is_root};

/// Returns the attributes of a place.
fn stat(sandbox: &Sandbox, place: &str) -> Value {
    let json: Value = serde_json::from_str(&sandbox.succeed(["stat", "--json", place])).unwrap();
    json[0].clone()
}

/// Returns a time in the attributes of a place, in seconds.
fn time(sandbox: &Sandbox, place: &str, which: &str) -> i64 {
    stat(sandbox, place)[which]["seconds"].as_i64().unwrap()
}

#[test]
fn touch_makes_files_and_sets_times() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["touch", "-c", "vol:/new"]);
    sandbox.succeed(["touch", "-c", "-h", "vol:/new"]);
    sandbox.fail(3, &["vol:/new", "check the spelling"], ["touch", "-h", "vol:/new"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "");
    sandbox.succeed(["touch", "vol:/new", "vol:/other"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "new\nother\n");
    assert!(time(&sandbox, "vol:/new", "modified") > 1_700_000_000);
    sandbox.succeed(["touch", "-d", "@1000.25", "vol:/new"]);
    assert_eq!(stat(&sandbox, "vol:/new")["modified"]["nanoseconds"], 250_000_000);
    sandbox.succeed(["touch", "-a", "-d", "@2000", "vol:/new"]);
    sandbox.succeed(["touch", "-m", "-d", "@3000", "vol:/other"]);
    let times = |place| (time(&sandbox, place, "accessed"), time(&sandbox, place, "modified"));
    assert_eq!(times("vol:/new"), (2000, 1000));
    assert_eq!(times("vol:/other").1, 3000);
    assert!(times("vol:/other").0 > 1_700_000_000);
    let mut local = sandbox.command(["touch", "-d", "1970-01-01 02:00", "vol:/made"]);
    assert!(local.env("TZ", "XST-1").status().unwrap().success());
    assert_eq!(times("vol:/made"), (3600, 3600));
    sandbox.succeed(["ln", "-s", "new", "vol:/link"]);
    sandbox.succeed(["touch", "-h", "-d", "@5", "vol:/link"]);
    sandbox.succeed(["touch", "-d", "@6", "vol:/link"]);
    assert_eq!((times("vol:/link"), times("vol:/new")), ((5, 5), (6, 6)));
    sandbox.fail(2, &["someday", "@1795000000"], ["touch", "-d", "someday", "vol:/new"]);
    let mut local = sandbox.command(["touch", "-t", "197001010200.30", "vol:/made"]);
    assert!(local.env("TZ", "XST-1").status().unwrap().success());
    assert_eq!(times("vol:/made"), (3630, 3630));
    sandbox.fail(2, &["1979", "202611201014"], ["touch", "-t", "1979", "vol:/new"]);
    sandbox.succeed(["touch", "-a", "-d", "@7", "vol:/made"]);
    sandbox.succeed(["touch", "-r", "vol:/made", "vol:/new"]);
    assert_eq!(times("vol:/new"), (7, 3630));
    fs::write(sandbox.path("host"), "").unwrap();
    let file = fs::File::options().write(true).open(sandbox.path("host")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(8)).unwrap();
    sandbox.succeed(["touch", "-m", "-r", "host", "vol:/new"]);
    assert_eq!(times("vol:/new"), (7, 8));
    sandbox.fail(3, &["vol:/none", "check the spelling"], ["touch", "-r", "vol:/none", "vol:/new"]);
    sandbox.fail(2, &["--date"], ["touch", "-r", "host", "-d", "@5", "vol:/new"]);
}

#[test]
fn truncate_sets_sizes() {
    let sandbox = Sandbox::with_volume("64M");
    let size = |place| stat(&sandbox, place)["size"].as_u64().unwrap();
    sandbox.succeed(["truncate", "-s", "1M", "vol:/a", "vol:/b"]);
    assert_eq!((size("vol:/a"), size("vol:/b")), (1 << 20, 1 << 20));
    assert_eq!(stat(&sandbox, "vol:/a")["allocated"], 0);
    sandbox.succeed(["truncate", "--size", "-1k", "vol:/a"]);
    sandbox.succeed(["truncate", "-s", "+3", "vol:/b"]);
    assert_eq!((size("vol:/a"), size("vol:/b")), ((1 << 20) - 1024, (1 << 20) + 3));
    sandbox.succeed(["truncate", "-s0", "vol:/a"]);
    assert_eq!(size("vol:/a"), 0);
    sandbox.succeed(["truncate", "-c", "-s", "5", "vol:/none"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "a\nb\n");
    sandbox.fail(2, &["1X", "4G"], ["truncate", "-s", "1X", "vol:/a"]);
    sandbox.succeed(["truncate", "-s", "9223372036854775807", "vol:/a"]);
    assert_eq!(size("vol:/a"), i64::MAX as u64);
    fs::write(sandbox.path("host"), "12345").unwrap();
    sandbox.succeed(["truncate", "-r", "host", "vol:/a", "vol:/c"]);
    assert_eq!((size("vol:/a"), size("vol:/c")), (5, 5));
    sandbox.succeed(["truncate", "-r", "vol:/a", "-s", "%4K", "vol:/b"]);
    assert_eq!(size("vol:/b"), 4096);
    sandbox.fail(2, &["host", "must begin with one of"], ["truncate", "-r", "host", "-s", "7", "vol:/b"]);
    sandbox.fail(3, &["none"], ["truncate", "-r", "none", "vol:/b"]);
    sandbox.fail(2, &["--size"], ["truncate", "vol:/b"]);
    sandbox.succeed(["rm", "vol:/c"]);
    sandbox.fail(1, &["vol:/", "directory"], ["truncate", "-s", "1", "vol:/"]);
}

#[test]
fn chmod_changes_modes() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/dir/inner"]);
    sandbox.succeed(["touch", "vol:/dir/file", "vol:/out"]);
    sandbox.succeed(["ln", "-s", "../out", "vol:/dir/link"]);
    let mode = |place| stat(&sandbox, place)["mode"].as_str().unwrap().to_owned();
    sandbox.succeed(["chmod", "640", "vol:/dir/file", "vol:/out"]);
    assert_eq!((mode("vol:/dir/file"), mode("vol:/out")), ("0640".into(), "0640".into()));
    sandbox.succeed(["chmod", "-R", "u=rwX,go=", "vol:/dir"]);
    let tree = ["vol:/dir", "vol:/dir/inner", "vol:/dir/file"].map(mode);
    assert_eq!(tree, ["0700", "0700", "0600"]);
    assert_eq!(mode("vol:/out"), "0640", "a link below the directory was followed");
    sandbox.succeed(["chmod", "o+r", "vol:/dir/link"]);
    assert_eq!(mode("vol:/out"), "0644");
    sandbox.succeed(["chmod", "-w", "vol:/out"]);
    assert_eq!(mode("vol:/out"), "0444");
    let told = sandbox.succeed(["chmod", "-v", "600", "vol:/out", "vol:/dir/file"]);
    let (changed, retained) = told.split_once('\n').unwrap();
    assert_eq!(changed, "mode of 'vol:/out' changed from 0444 (r--r--r--) to 0600 (rw-------)");
    assert_eq!(retained, "mode of 'vol:/dir/file' retained as 0600 (rw-------)\n");
    let told = sandbox.succeed(["chmod", "-c", "644", "vol:/out"]);
    assert_eq!(told, "mode of 'vol:/out' changed from 0600 (rw-------) to 0644 (rw-r--r--)\n");
    assert_eq!(sandbox.succeed(["chmod", "-c", "644", "vol:/out"]), "");
    sandbox.fail(2, &["u+q", "go-w"], ["chmod", "u+q", "vol:/out"]);
    // The other files are changed although one is missing.
    let output = sandbox.run(["chmod", "600", "vol:/none", "vol:/out"]);
    assert!(!output.status.success());
    assert_eq!(mode("vol:/out"), "0600");
}

/// Returns the result of id(1).
fn id(flag: &str) -> String {
    let output = Command::new("id").arg(flag).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn chown_accepts_names_and_numbers() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["touch", "vol:/file"]);
    let (user, group) = (id("-un"), id("-gn"));
    for owner in [&user, &format!("{user}:{group}"), &format!(":{}", id("-g")), &format!("{user}:")] {
        let told = sandbox.succeed(["chown", "-v", owner, "vol:/file"]);
        assert_eq!(told, format!("ownership of 'vol:/file' retained as {user}:{group}\n"));
    }
    sandbox.fail(
        2,
        &["unknown user", "nobody-of-this-name", "number"],
        ["chown", "nobody-of-this-name", "vol:/file"],
    );
    sandbox.fail(2, &["unknown group", "none-of-this-name"], ["chown", ":none-of-this-name", "vol:/file"]);
    sandbox.fail(2, &["no owner", "USER:GROUP"], ["chown", "", "vol:/file"]);
    assert!(sandbox.succeed(["chown", "-v", ":", "vol:/file"]).contains("retained as"));
}

#[test]
fn chown_of_root_changes_trees_and_links() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/dir/inner"]);
    sandbox.succeed(["touch", "vol:/dir/inner/file", "vol:/out"]);
    sandbox.succeed(["ln", "-s", "/out", "vol:/dir/link"]);
    let owner = |place| {
        let stat = stat(&sandbox, place);
        (stat["uid"].as_u64().unwrap(), stat["gid"].as_u64().unwrap())
    };
    sandbox.succeed(["chown", "12345:54321", "vol:/dir"]);
    assert_eq!((owner("vol:/dir"), owner("vol:/dir/inner")), ((12345, 54321), (0, 0)));
    sandbox.succeed(["chown", "-R", "7:8", "vol:/dir"]);
    for place in ["vol:/dir", "vol:/dir/inner", "vol:/dir/inner/file", "vol:/dir/link"] {
        assert_eq!(owner(place), (7, 8), "{place}");
    }
    assert_eq!(owner("vol:/out"), (0, 0), "a link below the directory was followed");
    sandbox.succeed(["chown", ":9", "vol:/dir/link"]);
    assert_eq!(owner("vol:/out"), (0, 9));
    sandbox.succeed(["chown", "-h", "3", "vol:/dir/link"]);
    assert_eq!((owner("vol:/dir/link"), owner("vol:/out")), ((3, 8), (0, 9)));
    let told = sandbox.succeed(["chown", "-v", "12345", "vol:/dir/link"]);
    assert!(told.starts_with("changed ownership of 'vol:/dir/link' from ") && told.contains(" to 12345:"));
}

#[test]
fn rm_prints_and_continues() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "-p", "vol:/dir/inner", "vol:/empty", "vol:/other/full"]);
    sandbox.succeed(["touch", "vol:/a", "vol:/b", "vol:/dir/inner/file"]);
    let told = sandbox.succeed(["rm", "-rv", "vol:/dir", "vol:/a"]);
    assert_eq!(
        told,
        "removed 'vol:/dir/inner/file'\nremoved directory 'vol:/dir/inner'\nremoved directory 'vol:/dir'\n\
         removed 'vol:/a'\n"
    );
    let output = sandbox.run(["rm", "vol:/none", "vol:/b"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "empty\nother\n");
    sandbox.succeed(["rm", "-d", "vol:/empty"]);
    sandbox.fail(1, &["vol:/other", "not empty"], ["rm", "-d", "vol:/other"]);
    sandbox.succeed(["rm", "-f", "vol:/none", "vol:/none/below"]);
    sandbox.succeed(["rm", "-f"]);
    sandbox.fail(2, &["VOLUME:/path"], ["rm"]);
    sandbox.fail(2, &["host"], ["rm", "-r", "vol:/other", "host"]);
    sandbox.succeed(["rm", "-R", "vol:/other"]);
    assert_eq!(sandbox.succeed(["ls", "vol:/"]), "");
}

#[test]
fn ln_replaces_files_and_enters_directories() {
    let sandbox = Sandbox::with_volume("64M");
    fs::write(sandbox.path("one"), "one").unwrap();
    fs::write(sandbox.path("two"), "two").unwrap();
    sandbox.succeed(["cp", "one", "two", "vol:/"]);
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.succeed(["ln", "-s", "one", "vol:/link"]);
    sandbox.fail(1, &["vol:/link", "exists"], ["ln", "-s", "two", "vol:/link"]);
    assert_eq!(sandbox.succeed(["ln", "-sfv", "two", "vol:/link"]), "'vol:/link' -> 'two'\n");
    assert_eq!(sandbox.succeed(["cat", "vol:/link"]), "two");
    assert_eq!(sandbox.succeed(["ln", "-v", "vol:/one", "vol:/dir"]), "'vol:/dir/one' => '/one'\n");
    // The same volume may have two paths.
    sandbox.succeed(["ln", "-f", "./vol:/two", "vol:/dir/one"]);
    assert_eq!(sandbox.succeed(["cat", "vol:/dir/one"]), "two");
    // A symbolic link does not replace the file to which it leads.
    for target in ["two", "/dir/../two"] {
        sandbox.fail(1, &["vol:/two", "to which it leads"], ["ln", "-sf", target, "vol:/two"]);
    }
    // Both are names of one file already, so nothing changes.
    sandbox.succeed(["ln", "-f", "vol:/two", "vol:/dir/one"]);
    assert_eq!(stat(&sandbox, "vol:/two")["links"], 2);
    sandbox.succeed(["ln", "-s", "dir", "vol:/current"]);
    sandbox.succeed(["ln", "-sfn", "other", "vol:/current"]);
    assert!(sandbox.succeed(["ls", "-l", "vol:/current"]).ends_with(" -> other\n"));
    sandbox.fail(1, &["vol:/dir", "name of the link"], ["ln", "-s", "..", "vol:/dir"]);
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "current\ndir\nlink\none\ntwo\n");
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/dir"]), "one\n");
}
