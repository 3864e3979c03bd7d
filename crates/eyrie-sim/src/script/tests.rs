//! Parsing and display of scripts, and the messages of errors.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use eyrie::{FallocateMode, InodeFlags, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, RenameMode, Time};
use proptest::prelude::*;

use super::call::USAGE;
use super::*;

fn path() -> impl Strategy<Value = OsString> {
    let byte = prop_oneof![Just(b'/'), Just(b' '), Just(b'"'), Just(b'a'), 1_u8..];
    prop::collection::vec(byte, 0..12).prop_map(OsString::from_vec)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    path().prop_map(OsString::into_vec)
}

fn mode() -> impl Strategy<Value = u16> {
    0..=0o7777_u16
}

fn id() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(0..u32::MAX)
}

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanoseconds)| Time::new(seconds, nanoseconds))
}

fn rename_mode() -> impl Strategy<Value = RenameMode> {
    prop::sample::select(RenameMode::ALL.to_vec())
}

fn length() -> impl Strategy<Value = u64> {
    0..=MAX_WRITTEN_BYTES
}

fn call() -> impl Strategy<Value = Call> {
    let number = any::<u64>;
    let fallocate_mode = prop::sample::select(FallocateMode::ALL.to_vec());
    let files = prop_oneof![
        (path(), mode()).prop_map(|(path, mode)| Call::Creat { path, mode }),
        (path(), mode()).prop_map(|(path, mode)| Call::Mkdir { path, mode }),
        (path(), path(), length(), number(), mode())
            .prop_map(|(dir, path, length, seed, mode)| { Call::Tmpfile { dir, path, length, seed, mode } }),
        (path(), number(), length(), number()).prop_map(|(path, offset, length, seed)| Call::Write {
            path,
            offset,
            length,
            seed
        }),
        (path(), length(), number()).prop_map(|(path, length, seed)| Call::Append { path, length, seed }),
        path().prop_map(|path| Call::Fsync { path }),
        path().prop_map(|path| Call::Fdatasync { path }),
        Just(Call::Sync),
        (path(), number()).prop_map(|(path, length)| Call::Truncate { path, length }),
        (path(), number(), path(), number(), number()).prop_map(
            |(from, from_offset, to, to_offset, length)| Call::Clone {
                from,
                from_offset,
                to,
                to_offset,
                length
            }
        ),
        (path(), fallocate_mode, number(), number())
            .prop_map(|(path, mode, offset, length)| Call::Fallocate { path, mode, offset, length }),
    ];
    let names = prop_oneof![
        (path(), path(), rename_mode()).prop_map(|(from, to, mode)| Call::Rename { from, to, mode }),
        (path(), path()).prop_map(|(from, to)| Call::Link { from, to }),
        (path(), path()).prop_map(|(target, path)| Call::Symlink { target, path }),
        path().prop_map(|path| Call::Unlink { path }),
        path().prop_map(|path| Call::Rmdir { path }),
    ];
    let kind = prop::sample::select(vec![QuotaKind::User, QuotaKind::Group, QuotaKind::Tree]);
    let rest = prop_oneof![
        (path(), name(), any::<Vec<u8>>()).prop_map(|(path, name, value)| Call::Setxattr {
            path,
            name,
            value
        }),
        (path(), name()).prop_map(|(path, name)| Call::Removexattr { path, name }),
        (path(), mode()).prop_map(|(path, mode)| Call::Chmod { path, mode }),
        (path(), id(), id()).prop_map(|(path, uid, gid)| Call::Chown { path, uid, gid }),
        (path(), 0..4_u8).prop_map(|(path, bits)| {
            Call::Chattr { path, flags: InodeFlags::from_bits_truncate(bits << 4) }
        }),
        (path(), any::<u32>()).prop_map(|(path, project)| Call::Project { path, project }),
        (kind, any::<u32>(), any::<[u64; 4]>()).prop_map(|(kind, number, [soft, hard, few, many])| {
            let limit = |soft, hard| QuotaLimit { soft, hard, deadline: 0 };
            let limits = QuotaLimits { bytes: limit(soft, hard), files: limit(few, many) };
            Call::Quota { account: QuotaId { kind, number }, limits }
        }),
        (path(), time(), time()).prop_map(|(path, accessed, modified)| Call::Utimes {
            path,
            accessed,
            modified
        }),
        (path(), any::<Vec<u8>>(), length(), number()).prop_map(|(dir, key, length, seed)| Call::Put {
            dir,
            key,
            length,
            seed
        }),
        (path(), any::<Vec<u8>>()).prop_map(|(dir, key)| Call::Erase { dir, key }),
    ];
    prop_oneof![files, names, rest]
}

proptest! {
    #[test]
    fn a_call_is_read_back_from_its_line(calls in prop::collection::vec(call(), 0..8)) {
        let script: Script = calls.into_iter().collect();
        let text = script.to_string();
        prop_assert_eq!(text.lines().count(), script.lines().len());
        prop_assert_eq!(Script::parse("test", text.as_bytes()), Ok(script));
    }

    #[test]
    fn no_text_makes_parsing_panic(text: Vec<u8>, line in "[a-z]{0,9}( [-0-9a-zA-Z\"\\\\/#.]{0,9}){0,5}") {
        let _ = Script::parse("test", &text);
        let _ = Script::parse("test", line.as_bytes());
    }
}

/// Parses a line with one call.
fn read(line: &str) -> Call {
    let script = Script::parse("test", line.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(script.lines().len(), 1, "{line}");
    script.lines()[0].call.clone()
}

#[test]
fn every_call_has_one_canonical_line() {
    for (line, canonical) in [
        ("creat /a", "creat /a 0644"),
        ("creat /a 4755", "creat /a 4755"),
        ("tmpfile / /a 1K 5", "tmpfile / /a 1024 5 0644"),
        ("tmpfile /d /a 0 5 600", "tmpfile /d /a 0 5 0600"),
        ("mkdir a", "mkdir a 0755"),
        ("mkdir /a 000700", "mkdir /a 0700"),
        ("write /a 0x10 4K 0", "write /a 16 4096 0"),
        (
            "write \"/a b\" 1M 0x1G 18446744073709551615",
            "write \"/a b\" 1048576 1073741824 18446744073709551615",
        ),
        ("append /a 010 1T", "append /a 10 1099511627776"),
        ("fsync /a", "fsync /a"),
        ("fdatasync /a", "fdatasync /a"),
        (" sync\t# all of it", "sync"),
        ("rename /a /b", "rename /a /b"),
        ("rename /a /b noreplace", "rename /a /b noreplace"),
        ("rename /a /b exchange", "rename /a /b exchange"),
        ("rename /a /b whiteout", "rename /a /b whiteout"),
        ("rename /a /b noreplace-whiteout", "rename /a /b noreplace-whiteout"),
        ("link /a /b", "link /a /b"),
        ("symlink ../a /b", "symlink ../a /b"),
        ("unlink /\u{e9}", "unlink \"/\\xc3\\xa9\""),
        ("rmdir \"\"", "rmdir \"\""),
        ("truncate /a 8191T", "truncate /a 9006099743113216"),
        ("fallocate /a punch-hole 0 0xff", "fallocate /a punch-hole 0 255"),
        ("fallocate /a zero-range-keep-size 1K 1", "fallocate /a zero-range-keep-size 1024 1"),
        ("setxattr /a user.b \"\\x00\\n\"", "setxattr /a user.b \"\\x00\\n\""),
        ("removexattr /a user.b", "removexattr /a user.b"),
        ("chmod /a 0", "chmod /a 0000"),
        ("chown /a 4294967294 -1", "chown /a 4294967294 -1"),
        ("chattr /a -", "chattr /a -"),
        ("chattr /a ai", "chattr /a ai"),
        ("project /a 0x10", "project /a 16"),
        ("quota tree 9 0 1M 10 010", "quota tree 9 0 1048576 10 10"),
        ("utimes /a 1.5 -1", "utimes /a 1.500000000 -1"),
        ("put / \"a\\x00/\" 64M 1", "put / \"a\\x00/\" 67108864 1"),
        ("erase /a \"#\" # a key", "erase /a \"#\""),
    ] {
        assert_eq!(read(line).to_string(), canonical);
        assert_eq!(read(canonical), read(line), "{line}");
    }
}

#[test]
fn lines_keep_their_numbers() {
    let script = Script::parse("test", b"# first\n\nsync\n  \t\nsync # again\n\nunlink /a").unwrap();
    let numbers: Vec<usize> = script.lines().iter().map(|line| line.number).collect();
    assert_eq!(numbers, [3, 5, 7]);
    assert_eq!(script.to_string(), "sync\nsync\nunlink /a\n");
    assert_eq!(Script::parse("test", b"").unwrap(), Script::default());
}

#[test]
fn bad_scripts_are_refused_in_one_line() {
    const CALLS: &str = "a call: one of creat, tmpfile, mkdir, write, append, read, fsync, fdatasync, sync, \
                         rename, link, symlink, unlink, rmdir, truncate, fallocate, clone, setxattr, \
                         removexattr, chmod, chown, chattr, project, quota, utimes, put, erase, \
                         batch";
    let quoted = "double quotes, as in \"a b\": a word without them cannot have a quote, a backslash or a \
                  control character";
    for (line, word, expected) in [
        ("crate /a", "crate", CALLS),
        ("Sync", "Sync", CALLS),
        ("\"\"", "\"\"", CALLS),
        ("creat", "creat", "creat PATH [MODE]"),
        ("write /a 0 1", "write", "write PATH OFFSET LENGTH SEED"),
        ("sync /a", "/a", "the end of the line (syntax: sync)"),
        ("creat /a 0644 0", "0", "the end of the line (syntax: creat PATH [MODE])"),
        (
            "rename /a /b exchange /c",
            "/c",
            "the end of the line (syntax: rename FROM TO [noreplace|exchange|whiteout|noreplace-whiteout])",
        ),
        ("creat \"/a\\x00\"", "\"/a\\x00\"", "PATH, without a NUL byte"),
        ("symlink \"\\x00\" /a", "\"\\x00\"", "TARGET, without a NUL byte"),
        ("setxattr /a \"\\x00\" b", "\"\\x00\"", "NAME, without a NUL byte"),
        ("creat /a 0888", "0888", "MODE, octal digits such as 0644, at most 7777"),
        ("chmod /a 10000", "10000", "MODE, octal digits such as 0644, at most 7777"),
        ("chmod /a u+x", "u+x", "MODE, octal digits such as 0644, at most 7777"),
        ("write /a 12q 1 1", "12q", "OFFSET, a number such as 4096, 0x1000 or 4K"),
        ("write /a -1 1 1", "-1", "OFFSET, a number such as 4096, 0x1000 or 4K"),
        ("write /a 1.5K 1 1", "1.5K", "OFFSET, a number such as 4096, 0x1000 or 4K"),
        ("write /a 4k 1 1", "4k", "OFFSET, a number such as 4096, 0x1000 or 4K"),
        ("write /a 0x 1 1", "0x", "OFFSET, a number such as 4096, 0x1000 or 4K"),
        ("write /a \"\" 1 1", "\"\"", "OFFSET, a number such as 4096, 0x1000 or 4K"),
        ("append /a 1 18446744073709551616", "18446744073709551616", "SEED, a number below 2^64"),
        ("truncate /a 16777216T", "16777216T", "LENGTH, a number below 2^64"),
        ("write /a 0 1073741825 1", "1073741825", "LENGTH of at most 1G: no call writes more"),
        ("append /a 0x40000001 1", "0x40000001", "LENGTH of at most 1G: no call writes more"),
        ("put / a 1T 1", "1T", "LENGTH of at most 1G: no call writes more"),
        ("rename /a /b replace", "replace", "noreplace, exchange, whiteout or noreplace-whiteout"),
        (
            "fallocate /a punch 0 1",
            "punch",
            "MODE, one of allocate, keep-size, punch-hole, zero-range, zero-range-keep-size, collapse-range, \
             insert-range, unshare-range, unshare-range-keep-size",
        ),
        ("chown /a root 0", "root", "UID, a number below 4294967295, or -1 to leave it as it is"),
        ("chown /a 0 4294967295", "4294967295", "GID, a number below 4294967295, or -1 to leave it as it is"),
        ("chattr /a +i", "+i", "FLAGS, one of -, a, i and ai"),
        ("chattr /a ia", "ia", "FLAGS, one of -, a, i and ai"),
        ("project /a 4294967296", "4294967296", "ID, a number below 2^32"),
        ("quota ada 7 0 0 0 0", "ada", "user, group or tree"),
        ("quota user 7 0 0 0 -1", "-1", "HARD-FILES, a number such as 4096, 0x1000 or 4K"),
        ("utimes /a 1. 1", "1.", "ATIME, seconds since 1970 such as 1700000000 or 1.000000005"),
        ("utimes /a 1 now", "now", "MTIME, seconds since 1970 such as 1700000000 or 1.000000005"),
        ("creat 'a b'", "'a", quoted),
        ("creat a\\ b", "a\\", quoted),
        ("creat a\"b\"", "a\"b\"", quoted),
        ("sync\r", "sync\\x0d", quoted),
        ("creat \"a b", "\"a b", "a closing double quote"),
        ("creat \"a\\\"", "\"a\\\"", "a closing double quote"),
        ("creat \"a\"b", "\"a\"b", "a blank after the closing double quote"),
        ("creat \"\\q\"", "\\q", "one of the escapes \\\\, \\\", \\n, \\t and \\xNN"),
        ("creat \"\\", "\\", "one of the escapes \\\\, \\\", \\n, \\t and \\xNN"),
        ("creat \"\\xg0\"", "\\xg0", "two hexadecimal digits after \\x"),
        ("creat \"\\x1", "\\x1", "two hexadecimal digits after \\x"),
    ] {
        let text = format!("sync\n\n{line}\nnonsense\n");
        let error = Script::parse("dir/file", text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("dir/file:3: {word}: expected {expected}"));
    }
}

#[test]
fn messages_stay_short_and_long_scripts_are_refused() {
    let error = Script::parse("test", "\u{e9}".repeat(1000).as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("test:1: \\xc3\\xa9") && error.len() < 500 && error.is_ascii(), "{error}");
    let error = Script::parse("test", &vec![b'\n'; MAX_SCRIPT_BYTES + 1]).unwrap_err();
    assert_eq!(error.to_string(), "test: a script must have at most 64 MiB");
}

#[test]
fn every_call_is_in_the_document() {
    // Markdown escapes a bar inside a table.
    let text = include_str!("../../../../docs/scripts.md").replace("\\|", "|");
    for (name, arguments) in USAGE {
        let line = format!("`{name} {arguments}").trim_end().to_owned() + "`";
        assert!(text.contains(&line), "{line}");
    }
}
