//! `eyrie sessions`: lists the programs that use a served volume.

use std::path::{Path, PathBuf};

use clap::Args;
use eyrie::Errno;
use eyrie_client::protocol::SessionState;
use eyrie_client::{Client, SOCKET_NAME, absence};
use serde_json::json;

use crate::failure::{Failure, Result, reason};
use crate::output::{Output, table};
use crate::{text, volumes};

/// List the programs that use a served volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eyrie sessions /dev/shm/vol
  eyrie sessions --json vol

Columns: the process that connected, its user, and the numbers of threads that are reading, of requests \
without an answer, and of reserved inode numbers for new files. The state is `connecting`, `open`, or \
`lacks room` while a request waits for free storage.")]
pub struct SessionsArgs {
    /// Served volume, or the socket of its service
    #[arg(value_name = "VOLUME")]
    volume: PathBuf,
    /// Print the sessions as JSON
    #[arg(long)]
    json: bool,
}

fn socket_of(volume: &Path) -> PathBuf {
    if volume.is_dir() { volume.join(SOCKET_NAME) } else { volume.to_owned() }
}

fn word(state: SessionState) -> &'static str {
    match state {
        SessionState::Connecting => "connecting",
        SessionState::Open => "open",
        SessionState::LacksStorage => "lacks room",
    }
}

pub fn run(arguments: &SessionsArgs, output: &mut Output) -> Result<()> {
    let volume = &arguments.volume;
    let (what, place) = ("cannot list the sessions of", text::path(volume));
    if matches!(volume.try_exists(), Ok(false)) {
        return Err(volumes::missing(what, volume));
    }
    let sessions = Client::sessions(&socket_of(volume)).map_err(|error| match absence(&error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            Failure::new(what, &place, "permission denied: ask the user of the service for `--allow-user`")
        }
        Some(_) => Failure::new(what, &place, "no service shares it: start one with `eyrie serve`"),
        None => Failure::new(what, &place, reason(&eyrie::Error::from_engine(error, "list sessions"))),
    })?;
    if arguments.json {
        let list: Vec<_> = sessions
            .iter()
            .map(|session| {
                json!({
                    "process": session.process,
                    "user": session.user,
                    "pins": session.pins,
                    "pending": session.pending,
                    "reserved": session.reserved,
                    "state": word(session.state()),
                })
            })
            .collect();
        return output.json(&json!({ "sessions": list }));
    }
    let mut rows = table(&["process", "user", "pins", "pending", "reserved", "state"], &[0, 1, 2, 3, 4]);
    for session in &sessions {
        let numbers = [session.process, session.user, session.pins, session.pending, session.reserved];
        rows.add_row(numbers.map(|n| n.to_string()).into_iter().chain([word(session.state()).to_owned()]));
    }
    Ok(output.table(&rows)?)
}
