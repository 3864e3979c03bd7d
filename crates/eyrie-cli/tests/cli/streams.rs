//! Tests of `cp` with `-`, which stands for a standard stream.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Sandbox;

/// Runs `eyrie cp` with these bytes as its standard input. It must succeed. Returns its standard output.
fn cp(sandbox: &Sandbox, input: &[u8], arguments: &[&str]) -> String {
    let mut command = sandbox.command(["cp"].iter().chain(arguments));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn cp_stores_its_input_and_prints_a_file() {
    let sandbox = Sandbox::with_volume("64M");
    let long: Vec<u8> = (0..2_000_003_u32).map(|number| (number % 251) as u8).collect();
    assert_eq!(cp(&sandbox, &long, &["-", "vol:/long"]), "");
    fs::write(sandbox.path("want"), &long).unwrap();
    sandbox.succeed(["diff", "--contents", "want", "vol:/long"]);
    let printed = sandbox.run(["cp", "vol:/long", "-"]);
    assert!(printed.status.success() && printed.stdout == long, "{}", printed.stdout.len());
    assert_eq!(cp(&sandbox, b"", &["-v", "-", "vol:/empty"]), "'-' -> 'vol:/empty'\n");
    assert_eq!(sandbox.succeed(["cp", "vol:/empty", "-"]), "");
    // A file is replaced, but not with -n, and gets the mode of a new file.
    sandbox.succeed(["chmod", "600", "vol:/empty"]);
    cp(&sandbox, b"new", &["-n", "-", "vol:/empty"]);
    assert_eq!(sandbox.succeed(["cp", "vol:/empty", "-"]), "");
    cp(&sandbox, b"new", &["-fup", "-", "vol:/empty"]);
    assert_eq!(sandbox.succeed(["cp", "vol:/empty", "-"]), "new");
    let stat: serde_json::Value =
        serde_json::from_str(&sandbox.succeed(["stat", "--json", "vol:/empty"])).unwrap();
    assert!(stat[0]["mode"] != "0600", "{stat}");
    fs::write(sandbox.path("-"), "named").unwrap();
    sandbox.succeed(["cp", "./-", "vol:/dash"]);
    sandbox.succeed(["cp", "vol:/dash", "./-"]);
    assert_eq!(sandbox.succeed(["cp", "vol:/dash", "-"]), "named");
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "dash\nempty\nlong\n");
}

#[test]
fn cp_refuses_a_stream_that_is_no_single_file() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkdir", "vol:/dir"]);
    sandbox.succeed(["touch", "vol:/a", "vol:/b"]);
    for (why, arguments) in [
        ("leave out -r", &["-r", "-", "vol:/x"][..]),
        ("leave out -r", &["-a", "vol:/dir", "-"]),
        ("--reflink", &["--reflink", "-", "vol:/x"]),
        ("streams", &["-", "-"]),
        ("./-", &["-", "vol:/a", "vol:/dir"]),
        ("./-", &["vol:/a", "vol:/b", "-"]),
        ("-v", &["-v", "vol:/a", "-"]),
        ("VOLUME:/path", &["-", "host"]),
        ("VOLUME:/path", &["host", "-"]),
    ] {
        sandbox.fail(2, &[why], ["cp"].iter().chain(arguments));
    }
    sandbox.fail(1, &["vol:/dir", "add the name"], ["cp", "-", "vol:/dir"]);
    sandbox.fail(1, &["vol:/dir", "name a file"], ["cp", "vol:/dir", "-"]);
    sandbox.fail(3, &["vol:/none/x"], ["cp", "-", "vol:/none/x"]);
    sandbox.fail(3, &["vol:/none"], ["cp", "vol:/none", "-"]);
    assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "a\nb\ndir\n");
}

#[test]
fn input_that_breaks_off_leaves_the_old_file() {
    let sandbox = Sandbox::with_volume("64M");
    cp(&sandbox, b"old", &["-", "vol:/file"]);
    let unchanged = || {
        assert_eq!(sandbox.succeed(["cat", "vol:/file"]), "old");
        assert_eq!(sandbox.succeed(["ls", "-a", "vol:/"]), "file\n");
    };
    // `far` is closed while it has unread bytes. So the command reads the 10,000 bytes, and then gets the
    // error of a reset connection.
    let (mut near, mut far) = UnixStream::pair().unwrap();
    near.write_all(b"unread").unwrap();
    far.write_all(&[7; 10_000]).unwrap();
    drop(far);
    let output = sandbox.command(["cp", "-", "vol:/file"]).stdin(OwnedFd::from(near)).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line, "eyrie: cannot read: standard input: Connection reset by peer\n");
    unchanged();
    // The volume has no room for the input.
    let zeros = fs::File::open("/dev/zero").unwrap();
    let output = sandbox.command(["cp", "-", "vol:/file"]).stdin(zeros).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && line.contains("vol:/file: No space left"), "{line}");
    unchanged();
    // An interrupt ends the command while it waits for more input.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = sandbox.command(["cp", "-", "vol:/file"]);
    let mut child = command.stdin(reader.try_clone().unwrap()).stderr(Stdio::null()).spawn().unwrap();
    writer.write_all(&[7; 10_000]).unwrap();
    while rustix::io::ioctl_fionread(&reader).unwrap() > 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    unchanged();
}

#[test]
fn output_that_is_closed_or_full_ends_the_copy() {
    let sandbox = Sandbox::with_volume("64M");
    cp(&sandbox, &vec![b'x'; 4 << 20], &["-", "vol:/large"]);
    let mut command = sandbox.command(["cp", "vol:/large", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 1000]).unwrap();
    drop(output);
    // As for `cat`, the reader has read enough.
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = sandbox.command(["cp", "vol:/large", "-"]).stdout(full).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && line.contains("cannot write: standard output"), "{line}");
}
