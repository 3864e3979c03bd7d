//! Compares two file systems of the kernel: the same random calls below two directories, each in a process
//! whose root is that directory.
//!
//! Each process writes a transcript: a line for each call with its answer, and a line for each object that
//! the call has changed. The transcripts must be equal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use eyrie::{Host, Stat};

use super::calls::{PosixCall, SLOTS, Slots};
use super::generate::generate;
use super::host::HostSide;
use super::tree::{self, Times};
use super::{
    Brief, ROOT_VARIABLE, WAITING_SEEDS, access_time_set, chains, enter_root, same_size, set_ids,
    wait_for_tick,
};

/// Environment variable with the path of the transcript of a child process.
const TRANSCRIPT_VARIABLE: &str = "EYRIE_TEST_TRANSCRIPT";
/// Number of lines that are shown before a difference.
const SHOWN_LINES: usize = 40;

/// Makes `count` calls of each of `seeds` below two directories, and compares the answers and the trees, as
/// [`compare_with_host`](super::compare_with_host) does. Leaves out calls for which `is_left_out` is true.
/// The second argument of `is_left_out` has the attributes of the object of the call, if the call has an
/// object.
///
/// `roots` returns the directories, and a value that keeps them until this function returns. `None` skips the
/// comparison. The test with the name `test` (in the form `module::function`) must do nothing but call this
/// function, because its program runs again for each directory. This process must be root.
///
/// # Panics
/// Panics at the first difference, with the calls before it, or if a child process fails.
pub fn compare_roots<T>(
    test: &str,
    seeds: Range<u64>,
    count: usize,
    is_left_out: fn(&PosixCall, Option<&Stat>) -> bool,
    roots: impl FnOnce() -> Option<([PathBuf; 2], T)>,
) {
    if let Some(path) = std::env::var_os(TRANSCRIPT_VARIABLE) {
        let mut out = BufWriter::new(File::create(path).expect("a transcript"));
        enter_root();
        let host = HostSide::new();
        for seed in seeds {
            let calls = generate(seed, count, host.users.len());
            write_calls(&host, seed, &calls, is_left_out, &mut out).expect("the transcript can be written");
        }
        for calls in [chains::calls(), set_ids::calls(), same_size::calls()] {
            // With seed 0, every call waits for the clock.
            write_calls(&host, 0, &calls, is_left_out, &mut out).expect("the transcript can be written");
        }
        return out.flush().expect("the transcript can be written");
    }
    let Some((roots, _kept)) = roots() else { return };
    let place = tempfile::tempdir().expect("a temporary directory");
    let paths = ["first", "second"].map(|name| place.path().join(name));
    let children = [0, 1].map(|side: usize| start(test, &roots[side], &paths[side]));
    // Both children have ended before a failure of one of them ends the test and removes their roots.
    let ended = children.map(|mut child| child.wait().expect("the child ends"));
    assert!(ended.iter().all(ExitStatus::success), "{test} failed in a child process: {ended:?}");
    let read = |path: &Path| std::fs::read_to_string(path).expect("the transcript can be read");
    let [expected, found] = paths.each_ref().map(|path| read(path));
    if let Some(at) = first_difference(&expected, &found) {
        let from = at.saturating_sub(SHOWN_LINES);
        let before: Vec<&str> = expected.lines().skip(from).take(at - from).collect();
        let line = |text: &str| text.lines().nth(at).unwrap_or("the end").to_owned();
        panic!("{}\n\n{}\n  but expected\n{}", before.join("\n"), line(&found), line(&expected));
    }
}

/// Returns the index of the first line that differs.
fn first_difference(expected: &str, found: &str) -> Option<usize> {
    let (mut expected, mut found) = (expected.lines(), found.lines());
    (0..).find_map(|index| match (expected.next(), found.next()) {
        (None, None) => Some(None),
        (expected, found) => (expected != found).then_some(Some(index)),
    })?
}

/// Starts the test again in a process that makes its calls below `root`.
fn start(test: &str, root: &Path, transcript: &Path) -> Child {
    let program = std::env::current_exe().expect("the test knows its program");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture"]).env(ROOT_VARIABLE, root);
    command.env(TRANSCRIPT_VARIABLE, transcript).spawn().expect("the test can be started again")
}

/// Makes calls in the emptied root, and writes their transcript.
fn write_calls(
    host: &HostSide,
    seed: u64,
    calls: &[(usize, PosixCall)],
    is_left_out: fn(&PosixCall, Option<&Stat>) -> bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let waits = seed.is_multiple_of(WAITING_SEEDS);
    host.empty();
    let mut slots: Slots<Host> = [const { None }; SLOTS];
    let (mut before, mut shown) = (host.tree(true), BTreeMap::new());
    for (index, (user, call)) in calls.iter().enumerate() {
        if host.is_beyond_comparison(&slots, call, (&host.host, &slots))
            || is_left_out(call, host.object_of(&slots, call).as_ref())
        {
            continue;
        }
        if waits {
            wait_for_tick();
        }
        let answer = host.perform(*user, &mut slots, call);
        writeln!(out, "seed {seed}, {index}: user {user}: {}: {answer:?}", Brief(call))?;
        let now = host.tree(true);
        let times = Times { accessed: access_time_set(call), changed: waits, reads: false };
        let lines = tree::describe(&before, &now, times);
        for name in shown.keys().filter(|name| !lines.contains_key(*name)) {
            writeln!(out, "    {name}: gone")?;
        }
        for (name, line) in lines.iter().filter(|(name, line)| shown.get(*name) != Some(*line)) {
            writeln!(out, "    {name}: {line}")?;
        }
        (before, shown) = (now, lines);
    }
    for handle in slots.into_iter().flatten() {
        host.close(handle);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn a_missing_line_is_a_difference() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(1));
        assert_eq!(first_difference("a\nb\n", "a\n"), Some(1));
        assert_eq!(first_difference("", "a\n"), Some(0));
    }
}
