//! Clients of one service, each of a different user.

use std::path::Path;
use std::sync::Arc;

use eyrie::{AccessTimes, Credentials, Host, MediumChoice, Pxfs, RangeOwner};
use eyrie_client::Client;

use super::{
    Comparison, HOST_RULES, PosixCall, compare_with_host, enter_root, plain_users, start_in_tmpfs_root,
};
use crate::services::{SOCKET_VARIABLE, served_and_checked, socket_of_parent};

/// Runs `body` in a child process, as [`in_tmpfs_root`](super::in_tmpfs_root) does. Meanwhile this process
/// serves a new volume of `bytes`. The argument of `body` has a client of this volume for each of the
/// [`plain_users`]. The kernel tells the service the user of each client. Checks the volume at the end.
///
/// # Panics
/// Panics if the child fails, or if the volume is not sound.
pub fn clients_in_tmpfs_root(
    test: &str,
    bytes: u64,
    medium: MediumChoice,
    body: impl FnOnce(&[Arc<Client>]),
) {
    if let Some(socket) = socket_of_parent() {
        let clients: Vec<_> = plain_users(0).iter().map(|who| client_of(&socket, who)).collect();
        assert!(enter_root(), "both variables are set");
        return body(&clients);
    }
    served_and_checked(bytes, medium, |socket| {
        start_in_tmpfs_root(test, |child| _ = child.env(SOCKET_VARIABLE, socket));
    });
}

/// Connects a client as a user.
fn client_of(socket: &Path, who: &Credentials) -> Arc<Client> {
    let connect = || {
        Host::become_user(who).expect("root can become any user");
        Arc::new(Client::connect(socket, false).expect("the service admits every user"))
    };
    std::thread::scope(|scope| scope.spawn(connect).join().expect("no panic"))
}

/// Compares the calls of several clients with those of the host, as [`compare_with_host`] does. The clients
/// are those of [`clients_in_tmpfs_root`], and make the calls of a seed in turn. `comparison` has the seeds.
///
/// # Panics
/// Panics at the first difference, with its description.
pub fn compare_clients_with_host(clients: &[Arc<Client>], comparison: Comparison) {
    let users = plain_users(0);
    let files = |who: &Credentials| {
        let user = users.iter().position(|user| user.uid() == who.uid()).expect("a user of the clients");
        let rules = *HOST_RULES.get().expect("read before the change of root");
        let files = Pxfs::new(Arc::clone(&clients[user]), who.clone()).with_rules(rules);
        files.with_access_times(AccessTimes::Relative)
    };
    let comparison = Comparison { users: plain_users, is_left_out, is_served: true, ..comparison };
    if let Err(difference) = compare_with_host(files, &comparison) {
        panic!("{difference}");
    }
}

/// True for a call that a service may refuse although the kernel allows it. Also true for range locks of a
/// process, because the users of the host are threads of one process.
fn is_left_out(call: &PosixCall) -> bool {
    match call {
        PosixCall::SetInodeFlags { .. } => true,
        PosixCall::LockRange { owner, .. } | PosixCall::FindLock { owner, .. } => {
            *owner == RangeOwner::Process
        }
        // A service always protects hard links.
        PosixCall::Link { .. } | PosixCall::Flink { .. } => {
            !HOST_RULES.get().is_some_and(|rules| rules.protected_hardlinks)
        }
        _ => false,
    }
}
