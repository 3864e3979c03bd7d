//! Services that a run starts, each in a process of its own.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use eyrie::Volume;
use rustix::process::{Pid, Signal, kill_process};

use crate::machine;

/// Maximum time until a service that starts can be reached, and until a service that should stop has ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts to reach a service that starts.
const PAUSE: Duration = Duration::from_millis(20);

/// The kinds of services that a run compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServiceKind {
    /// A service as `eyrie serve` starts it.
    Usual,
    /// A service on the processor of its client.
    Confined,
    /// A service that defers no change.
    Synchronous,
}

impl ServiceKind {
    /// Returns the description of a volume with such a service.
    pub fn description(self) -> &'static str {
        match self {
            ServiceKind::Usual => "volume of a service in another process, ",
            ServiceKind::Confined => "volume of a service on the processor of its client, ",
            ServiceKind::Synchronous => "volume of a service that defers no change, ",
        }
    }

    /// Returns the processors of the service and of its clients.
    pub fn processors(self) -> Vec<usize> {
        let processors = machine::processors();
        match self {
            // The first thread of a run is on the last processor (see `Crew`).
            ServiceKind::Confined => processors[processors.len() - 1..].to_vec(),
            _ => processors,
        }
    }

    /// Serves the volume at `place` with the program `command`, which is the command `eyrie`, and opens the
    /// volume.
    ///
    /// # Errors
    /// The reason, as a text.
    pub fn serve(
        self,
        command: &Path,
        place: &Path,
        stop: fn() -> bool,
    ) -> std::result::Result<(ServiceProcess, Volume), String> {
        let serve = || {
            // The service inherits the processors of the thread that starts it. A client looks at its
            // processors when it connects: on a single one it does not spin.
            machine::pin_to(&self.processors());
            let service = ServiceProcess::start(self, command, place, stop)?;
            let volume = Volume::open(place).map_err(|error| error.to_string())?;
            if volume.is_served() { Ok((service, volume)) } else { Err("its service has ended".to_owned()) }
        };
        let failed = |_| Err("the thread that starts its service panicked".to_owned());
        thread::scope(|scope| scope.spawn(serve).join().unwrap_or_else(failed))
    }
}

/// A process that serves a volume. The process is stopped when this value is dropped.
pub(crate) struct ServiceProcess(Child);

impl ServiceProcess {
    /// Starts a service, and returns when clients can connect.
    ///
    /// # Errors
    /// The reason, as a text: the service ends, does not answer in time, or `stop` returns true.
    fn start(
        kind: ServiceKind,
        command: &Path,
        volume: &Path,
        stop: fn() -> bool,
    ) -> std::result::Result<ServiceProcess, String> {
        let mut serve = Command::new(command);
        serve.args(["serve", "--foreground"]);
        serve.args((kind == ServiceKind::Synchronous).then_some("--synchronous")).arg(volume);
        // An interrupt of the terminal does not reach the service, so the calls of the run can end.
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut service = ServiceProcess(serve.spawn().map_err(|error| error.to_string())?);
        let started = Instant::now();
        while !service.answers(command, volume) {
            if stop() {
                return Err("the run was interrupted".to_owned());
            }
            if started.elapsed() > PATIENCE {
                return Err("its service does not answer".to_owned());
            }
            if service.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err("its service does not start".to_owned());
            }
            sleep(PAUSE);
        }
        Ok(service)
    }

    fn answers(&self, command: &Path, volume: &Path) -> bool {
        let mut sessions = Command::new(command);
        sessions.arg("sessions").arg(volume).stdout(Stdio::null()).stderr(Stdio::null());
        sessions.status().is_ok_and(|status| status.success())
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let started = Instant::now();
        while started.elapsed() < PATIENCE && self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            sleep(PAUSE);
        }
        // A service that does not react ends all the same. This call fails for one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn wait_for_a_service_ends_after_an_interrupt() {
        let directory = tempfile::tempdir().unwrap();
        let command = directory.path().join("command");
        fs::write(&command, "#!/bin/sh\ntest \"$1\" = serve && exec sleep 600\nexit 1\n").unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        let waited = ServiceProcess::start(ServiceKind::Usual, &command, directory.path(), || true);
        assert_eq!(waited.map(drop), Err("the run was interrupted".to_owned()));
    }

    #[test]
    fn confined_service_has_the_processor_of_the_first_thread() {
        let before = machine::processors();
        assert_eq!(ServiceKind::Confined.processors(), before[before.len() - 1..]);
        assert_eq!(ServiceKind::Usual.processors(), before);
        let missing = ServiceKind::Confined.serve(Path::new("/nowhere"), Path::new("/nowhere"), || false);
        assert!(missing.is_err());
        assert_eq!(machine::processors(), before, "the calling thread stays free");
    }
}
