//! Built-in scripts: every single call, every ordered pair and every ordered triple of calls on a small set
//! of objects; scripts that fill or grow a volume; pairs of scripts for two threads; and long random scripts.
//! The method is bounded black-box crash testing: the scripts are short, and the volumes are small.

use std::fmt::{self, Write as _};

use super::{ParallelScript, quotas, rights};

use crate::script::{Call, CallGenerator, CallMix, Script, ScriptLine, bytes};

/// Number of calls of a random script.
const LONG: usize = 24;

/// The script that makes the objects of [`singles`].
const SETUP: &str = "\
creat /a
write /a 0 100 1
link /a /a2
creat /b
write /b 0 5000 2
creat /c
write /c 0 24 3
symlink a /s
mkdir /d
creat /d/x
write /d/x 0 60 4
link /a /d/a3
mkdir /d/e
mkdir /e
mkdir /f
creat /f/z
put / k 40 5
put / k2 3000 6
creat /tree
write /tree 0 40000 7
write /tree 9000 100 8
creat /sparse
write /sparse 30000 100 9
truncate /sparse 200K
creat /ahead
write /ahead 0 5000 10
fallocate /ahead keep-size 8192 30000
setxattr /b user.one forty
setxattr /b user.two \"another value\"
setxattr /d/x user.one x
setxattr /e user.one directory
";

/// Calls that act on the objects of [`SETUP`] in different ways, one on each line. The crate `eyrie-testkit`
/// makes Ops of these calls for its crash cases.
const CALLS: &str = "
creat /new
creat /d/new
creat /b
tmpfile / /new 0 1
tmpfile /e /d/new 5000 46
tmpfile /d /b 100 47
mkdir /new
mkdir /d/e/new
symlink some/where /new
link /c /new
link /a /d/new
unlink /a
unlink /b
unlink /c
unlink /s
unlink /d/a3
unlink /tree
unlink /sparse
rmdir /e
rmdir /d/e
rmdir /d
rename /a /new
rename /a /new noreplace
rename /a /c noreplace
rename /a /a2
rename /c /b
rename /b /a
rename /c /d/new
rename /c /d/x
rename /d/x /a
rename /a2 /d/a3
rename /k /s
rename /e /new
rename /e /d/e
rename /f /e
rename /f /d/new
rename /d/e /g
rename /d /d/e/new
rename /tree /b
rename /a /new whiteout
rename /c /b whiteout
rename /c /d/x whiteout
rename /d/x /new noreplace-whiteout
rename /e /d/new whiteout
rename /f /e whiteout
rename /a /c exchange
rename /c /d/x exchange
rename /c /e exchange
rename /f /d/e exchange
rename /d /d/x exchange
write /c 8 8 11
write /c 3 4 12
write /c 3 12 13
write /a 0 100 14
write /a 50 100 15
write /a 200 10 16
write /a 5000 10 17
write /b 4090 20 18
write /b 0 6000 19
write /k 8 8 20
write /tree 4096 8 21
write /tree 100 3 22
write /tree 4000 200 23
write /tree 8192 4096 24
write /tree 39000 3000 25
write /tree 60000 50 26
write /sparse 0 8 27
write /sparse 29990 20 28
write /sparse 100K 5000 29
append /c 8 30
append /c 100 31
append /a 20 32
append /b 4000 33
append /tree 5000 34
append /sparse 4096 35
truncate /a 0
truncate /a 10
truncate /a 9000
truncate /b 4096
truncate /b 20000
truncate /tree 0
truncate /tree 12288
truncate /tree 39999
truncate /sparse 30050
truncate /sparse 1M
fallocate /a allocate 0 9000
fallocate /c allocate 10 100
fallocate /b punch-hole 100 200
fallocate /b zero-range 0 8192
fallocate /tree keep-size 30000 30000
fallocate /tree punch-hole 5000 20000
fallocate /tree zero-range-keep-size 4096 8192
fallocate /tree collapse-range 4096 8192
fallocate /tree insert-range 8192 4096
fallocate /sparse allocate 0 40000
fallocate /sparse collapse-range 4096 16384
fallocate /sparse insert-range 0 2M
clone /b 0 /c 0 0
clone /c 0 /b 8192 0
clone /tree 0 /b 0 0
clone /tree 4096 /a 8192 12288
clone /tree 0 /tree 40960 0
clone /b 4096 /sparse 0 0
clone /sparse 0 /ahead 0 0
append /ahead 5000 47
write /ahead 9000 100 48
truncate /ahead 5000
truncate /ahead 20000
fallocate /ahead keep-size 0 50000
fallocate /ahead punch-hole 4096 10000
setxattr /a user.one ten
setxattr /b user.one forty-one
setxattr /b user.three three
setxattr /s trusted.one link
setxattr / user.one root
setxattr / trusted.eyrie.quota sixteen-bytes-ok
removexattr /b user.one
removexattr /d/x user.one
removexattr /e user.one
chattr /b a
chattr /d i
project /d 9
project /a 9
quota user 9 0 16K 0 0
quota tree 9 0 0 0 2
chmod /a 4711
chmod / 0700
chown /b 9 -1
chown /s 5 6
utimes /b 5.000000001 77
utimes /d -5 77
read /b
read /s
read /d
put / new 100 41
put /d new 5000 42
put / k 41 43
put / k2 0 44
put / b 300 45
erase / k
erase / a
erase / k2
";

/// Calls that create or name an object at /n, one on each line.
const MAKING: &str = "
creat /n
mkdir /n
put / n 40 50
put / n 5000 51
tmpfile / /n 100 55
link /c /n
rename /c /n
symlink a/b /n
";

/// Calls that use the object of [`MAKING`], one on each line.
const CHANGING: &str = "
creat /n
mkdir /n
rename /n /n
truncate /n 0
chown /n 5 6
creat /n/m
mkdir /n/m
put /n m 40 52
write /n 0 100 53
truncate /n 5000
fallocate /n allocate 0 9000
setxattr /n user.one one
chmod /n 0700
utimes /n 5 77
read /n
link /n /d/n
unlink /n
rmdir /n
erase / n
put / n 50 54
rename /n /d/n
rename /b /n
rename /n /b exchange
rename /n /d/n whiteout
fsync /n
";

fn parse(name: &str, text: &str) -> Script {
    Script::parse(name, text.as_bytes()).expect("a constant script")
}

/// Returns the script that makes the objects of [`singles`].
pub fn setup() -> Script {
    parse("setup", SETUP)
}

/// Returns the calls of [`CALLS`], and calls that set and remove ACLs and a capability.
fn all_calls() -> Vec<Call> {
    calls("calls", CALLS).into_iter().chain(rights::calls()).collect()
}

/// Returns a script for each built-in call on the objects of [`setup`], with that call alone.
pub fn singles() -> Vec<Script> {
    all_calls().into_iter().map(|call| [call].into_iter().collect()).collect()
}

/// Returns a script for each ordered pair of the calls of [`singles`]. A pair may have one call twice. The
/// order of the scripts is mixed.
pub fn pairs() -> impl Iterator<Item = Script> {
    tuples(2)
}

/// Returns a script for each ordered triple of the calls of [`singles`]. There are too many scripts to
/// explore all, so their order is mixed, and callers take the first ones as a sample.
pub fn triples() -> impl Iterator<Item = Script> {
    tuples(3)
}

fn tuples(length: u32) -> impl Iterator<Item = Script> {
    let calls = all_calls();
    let count = calls.len();
    let all = count.pow(length);
    // A stride that is coprime to the number of tuples visits each tuple once.
    let stride = (all / 7 * 3..).find(|stride| is_coprime(*stride, all)).unwrap_or(1);
    (0..all).map(move |index| {
        let mut tuple = index * stride % all;
        let mut next = || {
            let call = calls[tuple % count].clone();
            tuple /= count;
            call
        };
        (0..length).map(|_| next()).collect()
    })
}

fn is_coprime(mut a: usize, mut b: usize) -> bool {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// Returns a script that fills a volume of a few MiB: first with the objects of [`setup`], then with appends
/// of decreasing length.
pub fn filling() -> Script {
    let mut text = SETUP.to_string();
    for (length, count) in [(64 << 10, 64), (4 << 10, 32), (1000, 16), (100, 64)] {
        line(&mut text, format_args!("creat /full-{length}"));
        (0..count).for_each(|seed| line(&mut text, format_args!("append /full-{length} {length} {seed}")));
    }
    parse("filling", &text)
}

/// Adds a line to a script.
fn line(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Returns eight scripts. Three of them grow and shrink a directory, the values of a store, and a file. One
/// nests and moves directories. One sets, inherits and removes ACLs. One sets capabilities and changes the
/// files that have them. One sets inode flags. One sets and reaches limits of quotas.
pub fn growth() -> Vec<Script> {
    let rights = [rights::acls(), rights::capabilities(), rights::flags()];
    let all = [splits(), values(), heights(), depths()].into_iter().chain(rights).chain([quotas::calls()]);
    all.map(|text| parse("growth", &text)).collect()
}

/// Returns calls that split the buckets of a directory, remove all its names, so that the buckets merge, and
/// split buckets again.
fn splits() -> String {
    let mut text = "mkdir /d\n".to_string();
    (0..120).for_each(|number| line(&mut text, format_args!("creat \"/d/a name of some length {number}\"")));
    (0..120).for_each(|number| {
        line(&mut text, format_args!("unlink \"/d/a name of some length {}\"", number * 7 % 120))
    });
    (0..50).for_each(|number| line(&mut text, format_args!("creat \"/d/a later name {number}\"")));
    text
}

/// Returns calls that change the sizes of the values of a store.
fn values() -> String {
    let mut text = "mkdir /k\n".to_string();
    for key in 0..60 {
        [10, 5000, 0]
            .iter()
            .for_each(|length| line(&mut text, format_args!("put /k key-{key} {length} {key}")));
    }
    text
}

/// Returns calls that add levels to the tree of a file by writes far past its end, and truncate the file
/// again.
fn heights() -> String {
    let mut text = "creat /tall\n".to_string();
    for bits in [12, 16, 19, 21, 22] {
        for offset in [1_u64 << bits, (1 << bits) - 2500, 100] {
            line(&mut text, format_args!("write /tall {offset} 5000 {bits}"));
        }
    }
    for bits in [22, 21, 20, 17, 13, 5, 0] {
        line(&mut text, format_args!("truncate /tall {}", 1_u64 << bits));
    }
    text
}

/// Returns calls that make and move nested directories.
fn depths() -> String {
    let (mut text, mut path) = (String::new(), String::new());
    for level in 0..24 {
        path.push_str(&format!("/{level}"));
        line(&mut text, format_args!("mkdir {path}"));
    }
    line(&mut text, format_args!("creat {path}/file"));
    text + "rename /0/1/2 /up\nrename /0/1 /up/1\nrename /up /0/down\n"
}

/// Returns the pair of scripts with this number for two threads. There are three kinds of pairs:
/// - two single calls;
/// - a call that makes or names an object, and a call that uses this object;
/// - two scripts of two calls each, none of which moves or removes a name, gives an object another name, or
///   changes inode flags.
///
/// Longer scripts of other calls may have no serial order. A call first looks up its name and then changes
/// the object. If the name moves to another object in between, no order of whole calls explains the result.
/// A call also checks inode flags before it changes the object.
/// For the same reason no pair has an append or a `quota`: an append reads the size of the file before it
/// writes, and `quota` reads the limits of all accounts before it sets them.
pub fn beside(number: u64) -> (Script, ParallelScript) {
    let mut taken = 0;
    let mut pick = |count: usize, from: &[Call]| -> Script {
        let mut next = || {
            taken += 1;
            from[bytes::word(number, taken) as usize % from.len()].clone()
        };
        (0..count).map(|_| next()).collect()
    };
    let mut others = all_calls();
    others.retain(|call| !matches!(call, Call::Append { .. } | Call::Quota { .. }));
    // The number is also the seed of the schedule. Its two lowest bits select how often the threads switch,
    // so the next two bits select the kind of the pair.
    let (script, beside) = match number / 4 % 4 {
        3 => {
            others.retain(keeps_names);
            (pick(2, &others), pick(2, &others))
        }
        1 => (pick(1, &calls("making", MAKING)), pick(1, &calls("changing", CHANGING))),
        _ => (pick(1, &others), pick(1, &others)),
    };
    (script, ParallelScript { script: beside, seed: number })
}

/// Returns true if the call neither moves nor removes a name, nor links an object to a name, nor changes
/// inode flags.
fn keeps_names(call: &Call) -> bool {
    !matches!(
        call,
        Call::Rename { .. }
            | Call::Link { .. }
            | Call::Tmpfile { .. }
            | Call::Unlink { .. }
            | Call::Rmdir { .. }
            | Call::Erase { .. }
            | Call::Batch { .. }
            | Call::Chattr { .. }
    )
}

/// Returns `script` with a `sync` after each call.
pub fn synced(script: &Script) -> Script {
    synced_every(script, 1)
}

/// Returns `script` with a `sync` after every `count` calls, and after the last call.
pub fn synced_every(script: &Script, count: usize) -> Script {
    let calls = |lines: &[ScriptLine]| lines.iter().map(|line| line.call.clone()).collect::<Vec<_>>();
    script.lines().chunks(count).flat_map(|lines| [calls(lines), vec![Call::Sync]].concat()).collect()
}

/// Returns a script with calls of [`singles`] and some syncs, chosen by a seed.
pub fn mixed(seed: u64) -> Script {
    let calls = all_calls();
    let pick = |number| match bytes::word(seed, number) as usize {
        any if any.is_multiple_of(5) => Call::Sync,
        any => calls[any / 5 % calls.len()].clone(),
    };
    (0..LONG as u64).map(pick).collect()
}

/// Returns the random script of a seed.
pub fn random(seed: u64) -> Script {
    // Large calls are left out, because a few of them would fill a small volume.
    CallGenerator::new(seed, CallMix::default()).filter(|call| !is_large(call)).take(LONG).collect()
}

fn is_large(call: &Call) -> bool {
    match call {
        Call::Write { offset, length, .. } => offset.saturating_add(*length) > 64 << 10,
        Call::Fallocate { offset, length, .. } => offset.saturating_add(*length) > 64 << 10,
        Call::Append { length, .. } | Call::Put { length, .. } => *length > 16 << 10,
        _ => false,
    }
}

fn calls(name: &str, text: &str) -> Vec<Call> {
    parse(name, text).lines().iter().map(|line| line.call.clone()).collect()
}
