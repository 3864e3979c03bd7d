//! Several clients that change names at the same time, and a client that takes a grant from another one.

use std::time::Duration;

use eyrie::{Posix, PosixExt};
use rustix::process::Signal;

use super::{ClientCall, GrantCall, SharedWorker};
use crate::client::{ClientJob, ClientProcess, Clients, HELD_NAME, NameChanger};
use crate::error::{Error, Result};
use crate::machine;
use crate::method::{ClientWork, Stopwatch};
use crate::service::ServiceKind;
use crate::workload::files::count_names;

/// Pause between the stop of the client that has a grant and the look-up that takes the grant from it.
const PAUSE: Duration = Duration::from_millis(5);

impl ClientCall {
    /// Returns the directories of the clients.
    fn directories(self, base: &str) -> Vec<String> {
        let own = |number: u64| format!("{base}/client-{number}");
        match self {
            ClientCall::One => vec![own(0)],
            ClientCall::Apart => vec![own(0), own(1)],
            ClientCall::Together => vec![format!("{base}/together"); 2],
        }
    }
}

impl<P: Posix + Clone + Send + Sync> SharedWorker<P>
where
    P::Handle: Send + Sync,
{
    /// Lets clients change names at the same time. Returns false if the side cannot have these clients.
    pub(super) fn change_together(&mut self, call: ClientCall, watch: &mut Stopwatch) -> Result<bool> {
        let is_confined = |clients: &Clients| clients.service == Some(ServiceKind::Confined);
        // Two clients and their service on one processor would show nothing about clients at the same time.
        if call != ClientCall::One && self.clients.as_ref().is_some_and(is_confined) {
            return Ok(false);
        }
        watch.check()?;
        let directories = call.directories(&self.directory);
        let done = match &self.clients {
            Some(clients) => of_processes(clients, &directories, self.amounts.changing)?,
            None => self.of_threads(&directories)?,
        };
        watch.add_clients(&done);
        (0..done.len() as u64).for_each(|client| watch.touch(client));
        for directory in directories {
            let names = count_names(&self.fs, &directory)?;
            watch.require(names == 0, || format!("{names} names of clients are left"))?;
        }
        Ok(true)
    }

    /// Changes names by threads of this process.
    fn of_threads(&self, directories: &[String]) -> Result<Vec<ClientWork>> {
        let (fs, time, processors) = (&self.fs, self.amounts.changing, &self.processors);
        let start = &std::sync::Barrier::new(directories.len());
        let client = |(number, directory): (u64, &String)| -> Result<ClientWork> {
            machine::pin_to(processors);
            let mut changer = NameChanger::new(fs, directory, number);
            let warm = changer.warm_up();
            start.wait();
            warm?;
            let done = changer.change(time)?;
            changer.prove()?;
            Ok(done)
        };
        let panicked = |_| Err(Error::wrong("a thread of a client panicked"));
        std::thread::scope(|scope| {
            let start = |part| scope.spawn(move || client(part));
            let threads: Vec<_> = (0..).zip(directories).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        })
    }

    /// Looks up the file that another client has logged, and so takes the grant from that client. Returns
    /// false on a side without a service.
    pub(super) fn take_grants(&mut self, call: GrantCall, watch: &mut Stopwatch) -> Result<bool> {
        let Some(clients) = self.clients.clone().filter(|clients| clients.service.is_some()) else {
            return Ok(false);
        };
        let directory = format!("{}/held", self.directory);
        let mut holder = clients.start(ClientJob::Hold, &directory)?;
        holder.line()?;
        for number in 0..self.amounts.taken {
            match call {
                GrantCall::Running => self.look(&directory, watch)?,
                GrantCall::Stopped => {
                    holder.signal(Signal::STOP)?;
                    std::thread::sleep(PAUSE);
                    self.look(&directory, watch)?;
                    holder.signal(Signal::CONT)?;
                }
                GrantCall::Killed => {
                    holder.signal(Signal::KILL)?;
                    self.look(&directory, watch)?;
                }
            }
            watch.touch(number);
            if call == GrantCall::Killed {
                holder = clients.start(ClientJob::Hold, &directory)?;
            } else {
                holder.go_on()?;
            }
            holder.line()?;
        }
        drop(holder);
        self.fs.remove_file(format!("{directory}/{HELD_NAME}"))?;
        let names = count_names(&self.fs, &directory)?;
        watch.require(names == 0, || format!("{names} names of a holder are left"))?;
        Ok(true)
    }

    /// Looks the file up, and removes it.
    fn look(&self, directory: &str, watch: &mut Stopwatch) -> Result<()> {
        let path = format!("{directory}/{HELD_NAME}");
        let mut size = 0;
        watch.time(1, |_| {
            size = self.fs.stat((&path).into())?.size;
            Ok(())
        })?;
        watch.require(size > 0, || "the file of another client is empty".to_owned())?;
        Ok(self.fs.remove_file(&path)?)
    }
}

/// Changes names by processes.
fn of_processes(clients: &Clients, directories: &[String], time: Duration) -> Result<Vec<ClientWork>> {
    let start = |directory: &String| clients.start(ClientJob::Change(time), directory);
    let mut processes = directories.iter().map(start).collect::<Result<Vec<_>>>()?;
    processes.iter_mut().try_for_each(|process| process.line().map(drop))?;
    processes.iter_mut().try_for_each(ClientProcess::go_on)?;
    processes.iter_mut().map(ClientProcess::changes).collect()
}
