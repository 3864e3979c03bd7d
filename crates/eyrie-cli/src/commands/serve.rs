//! `eyrie serve`: shares a volume with other programs until it is stopped.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use eyrie_client::SOCKET_NAME;
use eyrie_service::{ServeOptions, Service};
use serde_json::json;

use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place::real;
use crate::users::Names;
use crate::{background, interrupt, text, volumes};

/// Share a volume, so that several programs can use it at once
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie serve /dev/shm/vol
  eyrie serve --foreground --allow-user ada --allow-user 1001 vol
  eyrie sessions vol

Programs that open the volume connect to the service by themselves, and map the volume to read it. \
With --socket, the path of the socket stands for the volume: eyrie ls SOCKET:/. The service applies the \
changes of all programs with the rights that each user has. Everybody who may connect can read every \
byte of the volume, because it is mapped as a whole. A volume on a disk is read through the page cache of \
the service. Only the user of the service and root may connect, unless --allow-user names others.

The command returns when programs can connect, and a process in the background serves them. SIGTERM saves \
the volume. After SIGKILL the volume is sound, and the next service recovers it. On a disk, changes after \
the last sync may then be lost. docs/sharing.md has the details and a unit for systemd.")]
pub struct ServeArgs {
    /// Volume to share
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Place of the socket [default: service.sock in the directory of the volume]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A further user who may connect, by name or number; `all` for everybody
    #[arg(long = "allow-user", value_name = "USER")]
    allow: Vec<String>,
    /// Let each change wait for the service. Otherwise programs on a volume in shared memory log changes of
    /// files and directories that no other program uses, and the service applies them later
    #[arg(long)]
    synchronous: bool,
    /// Serve in this process, and return when it is stopped
    #[arg(long, short)]
    foreground: bool,
    /// Print the volume, the socket and the numbers of the allowed users as JSON; null for everybody
    #[arg(long, conflicts_with = "foreground")]
    json: bool,
    /// Print nothing if the command succeeds
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Serve in this process, detach from the terminal, and report to standard output
    #[arg(long, hide = true)]
    background: bool,
}

impl ServeArgs {
    /// Returns the place of the socket.
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.volume.join(SOCKET_NAME))
    }

    /// Returns the lines that tell who can connect, and the limits of the protection.
    fn announcement(&self) -> String {
        let volume = text::path(&self.volume);
        let users = if self.allow.iter().any(|user| user == "all") {
            "every user".to_owned()
        } else {
            let own = if rustix::process::geteuid().is_root() { &["root"][..] } else { &["you", "root"] };
            let further = self.allow.iter().map(String::as_str).filter(|name| !own.contains(name));
            let names: Vec<&str> = own.iter().copied().chain(further).collect();
            match names.split_last() {
                Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
                _ => names.concat(),
            }
        };
        format!(
            "serving {volume}: {users} can connect\n\
             A program that connects can read all of the volume, and change what its user may change.\n\
             Your programs, and root's, can also change the files of the volume directly. The service\n\
             guards against their mistakes, not against their malice.\n"
        )
    }
}

pub fn run(arguments: &ServeArgs, output: &mut Output) -> Result<()> {
    let options = options(arguments)?;
    if arguments.foreground || arguments.background {
        return serve(arguments, options, output);
    }
    let mut words: Vec<OsString> = vec!["serve".into(), "--background".into()];
    if let Some(socket) = &arguments.socket {
        words.extend([
            "--socket".into(),
            std::path::absolute(socket).unwrap_or_else(|_| socket.clone()).into(),
        ]);
    }
    for user in &arguments.allow {
        words.extend(["--allow-user".into(), user.into()]);
    }
    if arguments.synchronous {
        words.push("--synchronous".into());
    }
    words.extend(["--".into(), real(&arguments.volume).into()]);
    background::start(&words, &arguments.volume)?;
    if arguments.json {
        let (volume, socket) = (arguments.volume.to_string_lossy(), arguments.socket());
        let value = json!({ "volume": volume, "socket": socket.to_string_lossy(), "users": options.users });
        return output.json(&value);
    }
    if arguments.quiet {
        return Ok(());
    }
    write!(output, "{}", arguments.announcement())?;
    Ok(())
}

fn options(arguments: &ServeArgs) -> Result<ServeOptions> {
    let mut options = ServeOptions::default();
    options.paged = volumes::paged();
    options.defers_changes = !arguments.synchronous;
    let (mut known, names) = (Vec::new(), Names::of_host());
    for name in &arguments.allow {
        if name == "all" {
            options.users = None;
            return Ok(options);
        }
        known.push(names.uid(name).ok_or_else(|| Failure::usage("cannot allow", name, "no such user"))?);
    }
    options.users = Some(known);
    Ok(options)
}

fn serve(arguments: &ServeArgs, options: ServeOptions, output: &mut Output) -> Result<()> {
    if arguments.background {
        background::lead_session();
    }
    let place = || text::path(&arguments.volume);
    let failed = |error| {
        let error = eyrie::Error::from_engine(error, "serve volume");
        volumes::unopened("cannot serve the volume", &arguments.volume, &error)
    };
    let service = Service::start(&arguments.volume, &arguments.socket(), options).map_err(failed)?;
    let stopper = service.stopper();
    interrupt::install_with(move || stopper.stop());
    if arguments.background {
        background::report_ready().doing("detach from the terminal", place())?;
    } else if !arguments.quiet {
        // The service goes on even if the reader of the announcement has ended.
        let _ = write!(output, "{}", arguments.announcement()).and_then(|()| output.flush());
    }
    background::notify_manager("READY=1");
    let served = service.run();
    background::notify_manager("STOPPING=1");
    served.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_users_and_numbers_are_allowed() {
        let options = |user: &str| {
            options(&ServeArgs {
                volume: "vol".into(),
                socket: None,
                allow: vec![user.to_owned()],
                synchronous: false,
                foreground: true,
                json: false,
                quiet: false,
                background: false,
            })
        };
        assert_eq!(options("1001").unwrap().users, Some(vec![1001]));
        // This number means "no change" in chown(2), so no user has it.
        for unknown in ["4294967295", "no such name"] {
            assert!(options(unknown).expect_err("refused").to_string().contains("no such user"));
        }
    }
}
