//! Functions that run programs, make directories and copy files. Their errors name the program or the path.

use std::error::Error;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a server to mount, and for the start of a service.
const PATIENCE: Duration = Duration::from_secs(60);

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs a program to its end, and returns its standard output. The standard error of the program goes to the
/// terminal.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes a directory and the missing directories above it. Returns its absolute path, so that programs with
/// another working directory can use the path, too.
pub fn directory(path: &Path) -> Result<PathBuf> {
    let made = fs::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Copies a file, and makes the missing directories above the copy.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    to.parent().map(directory).transpose()?;
    fs::copy(from, to).map_err(|error| format!("copying {} to {}: {error}", from.display(), to.display()))?;
    Ok(())
}

/// Builds the command `eyrie`, and returns the path of the program.
pub fn eyrie_command() -> Result<PathBuf> {
    let build = ["build", "--release", "--quiet", "--package", "eyriefs-cli"];
    output(Command::new(env!("CARGO")).args(build))?;
    Ok(std::env::current_exe()?.with_file_name("eyrie"))
}

/// Starts a program that serves a mount at `point`, and waits until the mount is there. Kills a program that
/// does not mount within a minute.
pub fn serve(server: &mut Command, point: &Path) -> Result<Child> {
    let number = |path: &Path| fs::metadata(path).map(|path| path.st_dev());
    let parent = number(point.parent().unwrap_or(point))?;
    let mut child = server.stdin(Stdio::null()).spawn().map_err(|error| format!("{server:?}: {error}"))?;
    let started = Instant::now();
    while !number(point).is_ok_and(|number| number != parent) {
        if let Some(status) = child.try_wait()? {
            return Err(format!("{server:?}: {status}").into());
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(format!("{server:?}: the mount does not appear").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(child)
}

/// Starts a service of `volume` by the command `serve`, which has its options already. Waits until programs
/// can connect. Kills a service that does not start within a minute.
pub fn start_service(eyrie: &Path, mut serve: Command, volume: &Path) -> Result<Child> {
    serve.arg("--foreground").arg(volume).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut service = serve.spawn().map_err(|error| format!("{serve:?}: {error}"))?;
    let started = Instant::now();
    while !Command::new(eyrie).arg("sessions").arg(volume).output()?.status.success() {
        if let Some(status) = service.try_wait()? {
            return Err(format!("{serve:?}: {status}").into());
        }
        if started.elapsed() > PATIENCE {
            service.kill()?;
            service.wait()?;
            return Err(format!("{serve:?}: the service does not start").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(service)
}

/// Returns the private memory of a process, in MiB: without mappings of files and without shared memory.
/// Memory that the process has given back to the kernel does not count.
pub fn private_mib(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next());
    Ok(kib.ok_or("no RssAnon in /proc/PID/status")?.parse::<f64>()? / 1024.0)
}
