//! Commands that continue in a background process: the start of this process, and its report that it is
//! ready.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::failure::{Doing, Failure, Result};
use crate::{text, volumes};

/// The word with which the background process reports that it is ready.
const READY: &str = "ready";

/// Starts this program with these arguments in the background, and waits until the new process is ready.
/// Messages name the volume `volume`.
///
/// # Errors
/// Fails if the process cannot be started, or if [`wait_until_ready`] fails.
pub fn start(arguments: &[OsString], volume: &Path) -> Result<()> {
    let doing = |result: std::io::Result<_>| result.doing("start the server", text::path(volume));
    let program = std::env::current_exe().doing("start the server", text::path(volume))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(bytes) = volumes::memory() {
        command.env("EYRIE_MEMORY", bytes.to_string());
    }
    wait_until_ready(doing(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn())?, volume)
}

/// Waits until the background process is ready.
///
/// # Errors
/// Fails if the process ends before it is ready. If its exit status is not 0, the process has printed its own
/// error, so the failure is silent and has the same status. If the status is 0, or if a signal has ended the
/// process, the failure has the status 1 and a message.
fn wait_until_ready(mut child: Child, volume: &Path) -> Result<()> {
    let mut report = [0; READY.len()];
    let is_ready = child.stdout.take().is_some_and(|mut output| output.read_exact(&mut report).is_ok());
    if is_ready && report == READY.as_bytes() {
        return Ok(());
    }
    let status = child.wait().doing("wait for the server", text::path(volume))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    Err(code.map_or_else(
        || {
            let cause =
                status.signal().map_or("it ended".to_owned(), |signal| format!("signal {signal} ended it"));
            let why = format!("{cause} before it was ready");
            Failure::new("cannot start the server", text::path(volume), why)
        },
        Failure::silent,
    ))
}

/// Makes this process, which is the background process, the leader of a new session of setsid(2). A process
/// that leads a process group cannot start a session, and stays in its old one.
pub fn lead_session() {
    let _ = rustix::process::setsid();
}

/// Detaches from the terminal, and tells the starting process that this process is ready. Standard output
/// carries the report, so `/dev/null` replaces it last.
///
/// # Errors
/// Fails if one of the system calls fails. The starting process notices this only if the report was not sent.
pub fn report_ready() -> std::io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stderr(&null)?;
    let mut output = std::io::stdout().lock();
    output.write_all(READY.as_bytes())?;
    output.flush()?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// Tells the service manager a state, by the protocol of sd_notify(3). Does nothing without a manager, or if
/// the manager does not listen.
pub fn notify_manager(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `script` in a shell that stands for the background process. Returns the exit status and the text
    /// of the failure if the shell ends before the script has printed `ready`.
    fn start(script: &str) -> std::result::Result<(), (u8, String)> {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        wait_until_ready(child, Path::new("vol")).map_err(|failure| (failure.status(), failure.to_string()))
    }

    #[test]
    fn end_of_a_server_before_it_is_ready_is_an_error() {
        assert_eq!(start("printf ready"), Ok(()));
        let text = |why: &str| format!("cannot start the server: vol: {why} before it was ready");
        assert_eq!(start("kill -9 $$"), Err((1, text("signal 9 ended it"))));
        assert_eq!(start("exit 0"), Err((1, text("it ended"))));
        // The server has printed its error.
        assert_eq!(start("exit 3"), Err((3, String::new())));
    }
}
