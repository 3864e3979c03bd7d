//! Uses the kernel as the oracle of POSIX behaviour: makes random calls on a [`Posix`] file system and on the
//! host, and compares the answers.
//!
//! A seed determines a list of calls by several users over a few names. The calls act on files, directories,
//! symbolic and hard links, and open files. Paths may have trailing slashes, `.` and `..`. After every call,
//! the answers (result or errno) and the whole trees must agree. The trees are compared by kinds, modes,
//! owners, link counts, device numbers, sizes, the first bytes of each file, targets of symbolic links,
//! extended attributes, the names of each object, and the times that changed. They are not compared by inode
//! numbers, block counts, sizes of directories, or the order of listings.
//!
//! The root of the process must be the compared directory of the host, because `..` and absolute links would
//! lead out of any other directory. [`in_tmpfs_root`] runs a test in a child process whose root is an empty
//! directory of a tmpfs. [`compare_roots`] compares two directories of the host, each in such a process.

mod access;
mod access_times;
mod calls;
mod chains;
mod clients;
mod flags;
mod generate;
mod host;
mod locks;
mod quotas;
mod same_size;
mod set_ids;
mod threads;
mod transcript;
mod tree;
mod values;
mod xattr;

pub use calls::PosixCall;
pub use clients::{clients_in_tmpfs_root, compare_clients_with_host};
pub use generate::generate;
pub use host::{plain_users, users_of_seed};
pub use locks::{compare_deadlocks_with_host, compare_locks_of_clients_with_host, compare_locks_with_host};
pub use quotas::{OwnerLimits, compare_quotas_with_host, generate_pages, in_tmpfs_with_quotas};
pub use threads::compare_threads_with_host;
pub use transcript::compare_roots;
pub use values::CallPath;
pub use xattr::XattrCall;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eyrie::posix::{Posix, SetTime};
use eyrie::{AccessRules, AccessTimes, Credentials, Engine, Host, Kind, PosixExt, PosixLocks, Pxfs, Time};
use eyrie_engine::model::Model;
use eyrie_engine::scm::Scm;
use eyrie_engine::{ObjectId, Owner};
use eyrie_medium::Medium;
use eyrie_sim::explore::fixed_options;
use rustix::fs::Mode;

use self::calls::{SLOTS, Slots, perform};
use self::host::HostSide;
use self::tree::{Parts, PosixTree, Times};

/// The host's rules for shared directories, such as `fs.protected_hardlinks`. They are read before the change
/// of root, because the new root has no `/proc`.
static HOST_RULES: OnceLock<AccessRules> = OnceLock::new();

/// Environment variable with the root of a child process of [`in_tmpfs_root`].
const ROOT_VARIABLE: &str = "EYRIE_TEST_ROOT";
/// Environment variable with the path of a file that a child process makes before it changes its root. A
/// child without this file has run no test, because no test has the given name.
const MARKER_VARIABLE: &str = "EYRIE_TEST_ROOT_ENTERED";

/// A difference between the two file systems.
pub struct Difference {
    seed: u64,
    /// A list of calls. The difference appears after the last call.
    calls: Vec<(usize, PosixCall)>,
    what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        for (user, call) in &self.calls {
            writeln!(f, "  user {user}: {}", Brief(call))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows a call, with data as lengths.
struct Brief<'a>(&'a PosixCall);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = self.0.clone();
        if let PosixCall::Write { data, .. }
        | PosixCall::Append { data, .. }
        | PosixCall::AppendRange { data, .. } = &mut call
            && !data.is_empty()
        {
            let length = data.len();
            data.truncate(1);
            return write!(f, "{call:?} x {length}");
        }
        write!(f, "{call:?}")
    }
}

/// The calls of a comparison, and the users that make them.
#[derive(Clone)]
pub struct Comparison {
    /// The seeds, each of which determines a list of calls.
    pub seeds: Range<u64>,
    /// Number of calls of each seed.
    pub count: usize,
    /// Draws the calls of a seed. The arguments are the seed, the number of calls and the number of users.
    pub generate: fn(u64, usize, usize) -> Vec<(usize, PosixCall)>,
    /// Returns the users that make the calls of a seed: [`plain_users`] or [`users_of_seed`].
    pub users: fn(u64) -> Vec<Credentials>,
    /// True for a call that is not made.
    pub is_left_out: fn(&PosixCall) -> bool,
    /// Number of calls before each comparison of the trees. The answers are compared after each call.
    pub calls_per_tree: usize,
    /// Each run whose seed is a multiple of this number waits for the kernel's clock before each call, so
    /// that each change of a time is visible. The other runs do not wait, because waits are slow. Only the
    /// other runs compare the targets of symbolic links, because reading a target sets an access time, which
    /// the waiting runs compare. The waiting runs compare the trees after every call.
    pub waiting_seeds: u64,
    /// True if each user is a client of a service, with open files of its own. Calls that the service may
    /// answer in another way than the kernel are left out. If false, the users share their open files.
    pub is_served: bool,
    /// True if limits of quotas must refuse some calls. Then only the drawn calls are made.
    pub meets_limits: bool,
}

impl Comparison {
    /// Returns a comparison that makes random calls of [`users_of_seed`], and compares the trees after every
    /// call.
    pub fn new(seeds: Range<u64>, count: usize) -> Comparison {
        Comparison {
            seeds,
            count,
            generate,
            users: users_of_seed,
            is_left_out: |_| false,
            calls_per_tree: 1,
            waiting_seeds: WAITING_SEEDS,
            is_served: false,
            meets_limits: false,
        }
    }

    /// Works like [`Comparison::new`], but compares the trees and waits for the clock less often. This suits
    /// runs of millions of calls.
    pub fn long(seeds: Range<u64>, count: usize) -> Comparison {
        Comparison { calls_per_tree: 20, waiting_seeds: 20 * WAITING_SEEDS, ..Comparison::new(seeds, count) }
    }
}

/// Makes the calls of a comparison, and those of `access`, `access_times`, `chains`, `set_ids` and
/// `same_size`, on the host and on the file system under test. `subject` returns the file system under test
/// as one user sees it. The root of the calling thread must be an empty directory on a tmpfs. Both file
/// systems are emptied before each seed.
///
/// The clock of `subject` should never show the same time twice, because equal times would hide changes. A
/// counter can be the clock.
///
/// # Errors
/// The first difference, with a list of calls that shows it. The list is short: the function tries to leave
/// out calls.
pub fn compare_with_host<P: PosixLocks>(
    subject: impl Fn(&Credentials) -> P,
    comparison: &Comparison,
) -> Result<(), Box<Difference>> {
    let mut run = PosixRun { host: HostSide::new(), subjects: Vec::new(), comparison };
    for seed in comparison.seeds.clone() {
        run.become_users_of(seed, &subject);
        let calls = (comparison.generate)(seed, comparison.count, run.subjects.len());
        run.compare(seed, calls)?;
    }
    if comparison.meets_limits {
        assert!(run.host.over_limit.get() > 0, "no call met a limit");
        return Ok(());
    }
    for seed in access::SEEDS {
        run.become_users_of(seed, &subject);
        run.compare(seed, access::calls(run.subjects.len()))?;
    }
    run.become_users_of(0, &subject);
    // With seed 0, every call waits for the clock (see [`Comparison::waiting_seeds`]). Clients do not wait,
    // because a service does not decide which times a call sets.
    let seed = comparison.is_served.into();
    for calls in [access_times::calls(), chains::calls(), set_ids::calls(), same_size::calls()] {
        run.compare(seed, calls)?;
    }
    Ok(())
}

struct PosixRun<'a, P: PosixLocks> {
    host: HostSide,
    /// The file system under test, as each user sees it.
    subjects: Vec<P>,
    comparison: &'a Comparison,
}

/// The usual value of [`Comparison::waiting_seeds`].
const WAITING_SEEDS: u64 = 12;

/// Waits until the kernel's clock for file times is later than every time that a file can have now. This
/// clock advances in whole ticks, so it lags behind the exact clock, from which Linux also takes some times.
fn wait_for_tick() {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::thread::sleep(Duration::from_micros(500));
    }
}

impl<P: PosixLocks> PosixRun<'_, P> {
    fn become_users_of(&mut self, seed: u64, subject: &impl Fn(&Credentials) -> P) {
        self.host.users = (self.comparison.users)(seed);
        self.subjects = self.host.users.iter().map(subject).collect();
    }

    fn compare(&self, seed: u64, mut calls: Vec<(usize, PosixCall)>) -> Result<(), Box<Difference>> {
        calls.retain(|(_, call)| !(self.comparison.is_left_out)(call));
        let per_tree = self.comparison.calls_per_tree;
        self.calls(seed, &calls, per_tree).map_err(|found| {
            // With more comparisons of the trees, the difference may appear at an earlier call.
            let again = |per_tree| self.calls(seed, &calls, per_tree).err().map(|found| (per_tree, found));
            let Some((per_tree, (index, what))) = again(1).or_else(|| again(per_tree)) else {
                let what = format!("{} (once in three runs of the same calls)", found.1);
                return Box::new(Difference { seed, calls, what });
            };
            calls.truncate(index + 1);
            Box::new(self.reduce(seed, calls, what, per_tree))
        })
    }

    /// Makes all calls. An error has the index of the first call after which a difference was found, and the
    /// difference.
    fn calls(&self, seed: u64, calls: &[(usize, PosixCall)], per_tree: usize) -> Result<(), (usize, String)> {
        self.host.empty();
        empty(&self.subjects[0]);
        let tables = if self.comparison.is_served { self.subjects.len() } else { 1 };
        let mut host_files: Vec<Slots<Host>> = (0..tables).map(|_| [const { None }; SLOTS]).collect();
        let mut subject_files: Vec<Slots<P>> = (0..tables).map(|_| [const { None }; SLOTS]).collect();
        let result = self.each(seed, calls, per_tree, &mut host_files, &mut subject_files);
        for (subject, slots) in self.subjects.iter().zip(subject_files) {
            slots.into_iter().flatten().for_each(|handle| subject.close(handle).expect("open files close"));
        }
        result
    }

    fn each(
        &self,
        seed: u64,
        calls: &[(usize, PosixCall)],
        per_tree: usize,
        host_files: &mut [Slots<Host>],
        subject_files: &mut [Slots<P>],
    ) -> Result<(), (usize, String)> {
        let waits = seed.is_multiple_of(self.comparison.waiting_seeds);
        let per_tree = if waits { 1 } else { per_tree };
        let mut before = self.trees(!waits).map_err(|what| (0, what))?;
        for (index, (user, call)) in calls.iter().enumerate() {
            let table = user % host_files.len();
            let (host_slots, subject_slots) = (&mut host_files[table], &mut subject_files[table]);
            let subject = (&self.subjects[table], &*subject_slots);
            let is_beyond = || self.host.is_beyond_comparison(host_slots, call, subject);
            let is_left_out = if self.comparison.is_served {
                // The client makes the look-ups of the checks as its user, and so does the host.
                let is_beyond_a_service = || self.host.is_beyond_a_service(*user, host_slots, call, subject);
                self.host.as_user(*user, || is_beyond() || is_beyond_a_service())
            } else {
                is_beyond()
            };
            if !is_left_out {
                if waits {
                    wait_for_tick();
                }
                let expected = self.host.perform(*user, host_slots, call);
                let found = perform(&self.subjects[*user], subject_slots, call);
                if expected != found {
                    return Err((index, format!("{found:?}, but expected {expected:?}")));
                }
            }
            let number = index + 1;
            if !number.is_multiple_of(per_tree) && number < calls.len() {
                continue;
            }
            let now = self.trees(!waits).map_err(|what| (index, what))?;
            let accessed = access_time_set(call).filter(|_| !is_left_out);
            let times = Times { accessed, changed: waits, reads: true };
            if let Some(what) = tree::difference((&before.0, &before.1), (&now.0, &now.1), times) {
                return Err((index, what));
            }
            before = now;
        }
        Ok(())
    }

    /// Returns all objects of the host and of the file system under test.
    fn trees(&self, targets: bool) -> Result<(PosixTree, PosixTree), String> {
        let subject = tree::read(&self.subjects[0], Parts { xattrs: self.host.xattrs, targets })
            .map_err(|errno| format!("root cannot read everything: {errno:?}"))?;
        Ok((self.host.tree(targets), subject))
    }

    /// Tries to leave out sequences of consecutive calls, from half of the calls down to single calls. A
    /// sequence stays out if the remaining calls still show a difference.
    fn reduce(
        &self,
        seed: u64,
        mut calls: Vec<(usize, PosixCall)>,
        mut what: String,
        per_tree: usize,
    ) -> Difference {
        eprintln!("seed {seed}: {what}. The list of calls is made shorter.");
        let mut run = calls.len() / 2;
        while run > 0 {
            let mut end = calls.len();
            while end > 0 {
                let start = end.saturating_sub(run);
                let mut fewer = calls.clone();
                fewer.drain(start..end);
                end = start;
                if let Err((last, still)) = self.calls(seed, &fewer, per_tree) {
                    fewer.truncate(last + 1);
                    (calls, what) = (fewer, still);
                    end = end.min(calls.len());
                }
            }
            run /= 2;
        }
        Difference { seed, calls, what }
    }
}

/// Returns the access time that a call sets to a given value. The time is compared only directly after the
/// call, because later reads may set another time.
fn access_time_set(call: &PosixCall) -> Option<Time> {
    match call {
        PosixCall::Utimens { accessed: SetTime::To(time), .. }
        | PosixCall::Lutimens { accessed: SetTime::To(time), .. }
        | PosixCall::Futimens { accessed: SetTime::To(time), .. } => Some(*time),
        _ => None,
    }
}

/// Empties a file system, and gives all users all rights on its root.
fn empty<P: Posix>(fs: &P) {
    flags::clear(fs);
    fs.remove_dir_all("/").expect("root removes everything");
    fs.chown("/".into(), Some(0), Some(0)).expect("root owns the root");
    fs.chmod("/".into(), 0o777).expect("root changes the root");
    xattr::clear(fs);
}

/// Changes the root of this process, if it is a child process of a comparison. Returns false if it is not.
fn enter_root() -> bool {
    let Some(root) = std::env::var_os(ROOT_VARIABLE) else { return false };
    HOST_RULES.get_or_init(AccessRules::of_host);
    if let Some(marker) = std::env::var_os(MARKER_VARIABLE) {
        std::fs::write(marker, "").expect("the parent has made the directory");
    }
    // The new root has no `/proc`, so the names of open files are relative: see [`HostSide::new`].
    std::env::set_current_dir("/proc/self/fd").expect("the host has a /proc");
    rustix::process::chroot(&*root).expect("root changes its root");
    rustix::process::umask(Mode::empty());
    true
}

/// Runs `body` in a child process whose root is an empty directory of a tmpfs. The child runs only the test
/// with the name `test` (in the form `module::function`, as the test harness prints it). If the host has no
/// tmpfs, or this process is not root, the function prints a note and returns.
///
/// # Panics
/// Panics if the child fails, or if no test has this name.
pub fn in_tmpfs_root(test: &str, body: impl FnOnce()) {
    if enter_root() {
        return body();
    }
    start_in_tmpfs_root(test, |_| ());
}

/// Starts the child process of [`in_tmpfs_root`], after `prepare` has changed its command.
fn start_in_tmpfs_root(test: &str, prepare: impl FnOnce(&mut Command)) {
    // The number is `TMPFS_MAGIC` of Linux.
    let tmpfs = |path: &&&str| rustix::fs::statfs(**path).is_ok_and(|stat| stat.f_type == 0x0102_1994);
    let Some(tmpfs) = ["/dev/shm", "/tmp", "/run"].iter().find(tmpfs) else {
        eprintln!("skipped: there is no tmpfs to compare with");
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be several users");
        return;
    }
    let root = tempfile::tempdir_in(tmpfs).expect("a tmpfs has room for a directory");
    run_in_root(root.path(), test, prepare);
}

/// Runs a test in a child process whose root is `root`, after `prepare` has changed its command.
fn run_in_root(root: &Path, test: &str, prepare: impl FnOnce(&mut Command)) {
    let program = std::env::current_exe().expect("the test knows its program");
    let place = tempfile::tempdir().expect("a temporary directory");
    let marker = place.path().join("entered");
    let mut child = Command::new(program);
    child.args([test, "--exact", "--nocapture"]).env(ROOT_VARIABLE, root).env(MARKER_VARIABLE, &marker);
    prepare(&mut child);
    let status = child.status().expect("the test can be started again");
    assert!(status.success(), "{test} failed in its child process");
    assert!(marker.exists(), "no test has the name {test}");
}

/// Compares POSIX calls over the reference model with the calls of the host, as [`compare_with_host`] does.
///
/// # Panics
/// Panics at the first difference, with its description.
pub fn compare_model_with_host(comparison: &Comparison) {
    let root = ObjectId::new(64, Kind::Directory);
    let model = Model::new(root, Owner { mode: 0o777, uid: 0, gid: 0 }, counter());
    compare_engine_with_host(Arc::new(model), comparison);
}

/// Compares POSIX calls over the `scm` engine with the calls of the host, as [`compare_with_host`] does. Then
/// checks the volume, which is a new one on `medium`.
///
/// # Panics
/// Panics at the first difference, with its description, or if the volume is not sound in the end.
pub fn compare_scm_with_host(medium: Medium, comparison: &Comparison) {
    let engine = new_engine(medium);
    compare_engine_with_host(Arc::clone(&engine), comparison);
    check(&engine);
}

fn new_engine(medium: Medium) -> Arc<Scm> {
    let options = fixed_options(8 << 20, counter());
    let owner = Owner { mode: 0o777, uid: 0, gid: 0 };
    Arc::new(Scm::create_on(medium, &options, owner, counter()).expect("a new volume"))
}

fn check(engine: &Scm) {
    let report = engine.check().expect("the medium is sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

fn compare_engine_with_host<E: Engine>(engine: Arc<E>, comparison: &Comparison) {
    let fs = Pxfs::new(engine, Credentials::root())
        .with_rules(*HOST_RULES.get_or_init(AccessRules::of_host))
        .with_clock(counter)
        .with_access_times(AccessTimes::Relative)
        .with_short_writes(comparison.meets_limits);
    if let Err(difference) = compare_with_host(|who| fs.with_credentials(who.clone()), comparison) {
        panic!("{difference}");
    }
}

/// Returns the next time of a clock that never shows the same time twice. A run takes less than a day on this
/// clock and on that of the kernel, so no access time becomes a day old.
fn counter() -> Time {
    static NEXT: AtomicI64 = AtomicI64::new(0);
    let micros = NEXT.fetch_add(1, Ordering::Relaxed);
    Time::new(2_000_000_000 + micros / 1_000_000, (micros % 1_000_000) as u32 * 1000)
}
