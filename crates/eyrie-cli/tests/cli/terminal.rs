//! Tests of the output in a terminal.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::Sandbox;

/// Opens a pseudo terminal of this width. Returns its controller and the terminal. The close of the
/// controller hangs up the terminal.
pub(crate) fn open(columns: u16) -> (OwnedFd, fs::File) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let options = fs::File::options().read(true).write(true).clone();
    let terminal = options.open(Path::new(OsStr::from_bytes(name.as_bytes()))).unwrap();
    (controller, terminal)
}

/// Removes the codes for styles and colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or("", |(_, rest)| rest))
}

/// Runs the command, which must succeed, in a terminal of this width. Returns its lines without styles.
fn lines_in_terminal(sandbox: &Sandbox, columns: u16, arguments: &[&str]) -> Vec<String> {
    let (controller, terminal) = open(columns);
    let mut command = sandbox.command(arguments);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("COLUMNS");
    let mut child = command.stdout(terminal).spawn().unwrap();
    // `command` also holds the terminal. After this drop only the child holds it, so the end of the child
    // ends the output.
    drop(command);
    let (mut controller, mut bytes) = (fs::File::from(controller), Vec::new());
    // After the end of the output, a read fails with EIO.
    let _ = controller.read_to_end(&mut bytes);
    assert!(child.wait().unwrap().success(), "{arguments:?}: {}", String::from_utf8_lossy(&bytes));
    let text = plain(&String::from_utf8(bytes).unwrap());
    text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

#[test]
fn lines_fit_into_the_terminal() {
    let sandbox = Sandbox::with_volume("64M");
    sandbox.succeed(["mkfs", "disk", "--size", "64M", "--medium", "paged", "--checksums"]);
    fs::create_dir(sandbox.path("tree")).unwrap();
    eyrie_testkit::tree_fixture::fill(&sandbox.path("tree"), 200, 9000).unwrap();
    let subcommands = crate::subcommands(&sandbox);
    for columns in [80, 120] {
        let volume = format!("tour-{columns}");
        let tour = ["tour", "tree", "--volume", &volume, "--seconds", "1"];
        let mut commands = vec![
            vec!["--help"],
            vec!["info", "vol"],
            vec!["info", "disk"],
            vec!["df", "vol", "disk"],
            vec!["stats", "vol"],
            vec!["stats", "disk"],
            tour.to_vec(),
        ];
        for names in &subcommands {
            commands.push(names.iter().map(String::as_str).chain(["--help"]).collect());
        }
        let mut wide = Vec::new();
        for arguments in &commands {
            let lines = lines_in_terminal(&sandbox, columns, arguments);
            assert!(lines.len() > 1, "{arguments:?}: {lines:?}");
            let too_long = lines.iter().filter(|line| line.chars().count() > usize::from(columns));
            wide.extend(too_long.map(|line| format!("{columns} columns: {arguments:?}: {line}")));
            if *arguments == tour {
                let touched = lines.iter().any(|line| line.ends_with("touched"));
                assert_eq!(touched, columns == 120, "a wide terminal has all columns: {lines:#?}");
            }
        }
        assert!(wide.is_empty(), "{wide:#?}");
    }
}

#[test]
fn output_without_a_terminal_has_whole_lines_and_no_styles() {
    let sandbox = Sandbox::with_volume("64M");
    let text = sandbox.succeed(["info", "vol"]);
    assert!(text.lines().any(|line| line.len() > 80 && line.contains("medium")), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    // A terminal that does not tell its width gets whole lines, too.
    let whole: Vec<&str> = text.lines().collect();
    assert_eq!(lines_in_terminal(&sandbox, 0, &["info", "vol"]), whole);
}
