//! Compares the `scm` engine with the model: in memory, on files of the host and on persistent memory.
//! `EYRIE_TEST_PMEM` names a directory on persistent memory. If this variable is not set, the engine runs its
//! code for persistent memory on an ordinary file.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use eyrie::{Credentials, Posix, PosixExt, Pxfs, RenameMode};
use eyrie_engine::volume::{MediumChoice, Options};
use eyrie_engine::{Content, Engine, Kind, ObjectId, Op, Owner, Time, XattrMode, scm::Scm};
use eyrie_faults::{CrashImage, ImageBase, WrittenBack, crash_medium, pmem_anywhere};
use eyrie_medium::{Addr, Dirty, Medium, MediumKind};
use eyrie_sim::compare::{difference, tree};
use eyrie_sim::explore::fixed_options;
use eyrie_testkit::ops::OpMix;
use eyrie_testkit::oracle;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const BORN: Time = Time::new(1, 0);
const BYTES: u64 = 64 << 20;
const PMEM_BYTES: u64 = 8 << 20;

fn options() -> Options {
    fixed_options(8 << 20, BORN)
}

/// Returns an engine on a new volume in private memory.
fn in_memory() -> Scm {
    let medium = Medium::memory(BYTES).expect("memory");
    Scm::create_on(medium, &options(), OWNER, BORN).expect("a new volume")
}

/// Returns an engine that uses a file as persistent memory, the recorded write-backs, and the file.
fn on_pmem() -> (Scm, WrittenBack, File) {
    let file = match std::env::var_os("EYRIE_TEST_PMEM") {
        Some(directory) => tempfile::tempfile_in(directory),
        None => tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()),
    };
    let file = file.expect("a file");
    file.set_len(PMEM_BYTES).expect("resized");
    let (medium, written) = pmem_of(&file);
    let options = Options { group_bytes: 1 << 20, ..options() };
    (Scm::create_on(medium, &options, OWNER, BORN).expect("a new volume"), written, file)
}

fn pmem_of(file: &File) -> (Medium, WrittenBack) {
    pmem_anywhere(file.try_clone().expect("a handle"), PMEM_BYTES).expect("mapped")
}

/// Panics unless all stores of the engine were written back. The function issues a fence first, because
/// stores to headers of removed objects may still wait for a fence.
fn assert_written(engine: &Scm, written: &WrittenBack) {
    let medium = engine.volume().medium();
    let _ = medium.barrier(Dirty::nothing());
    let (memory, kept) = (medium.snapshot(), written.bytes());
    let lost: Vec<usize> = (0..memory.len()).filter(|&at| memory[at] != kept[at]).collect();
    assert!(lost.is_empty(), "not written back: bytes {lost:#x?}");
}

/// Returns an engine on a copy of a crash image.
fn on_image(bytes: &[u8]) -> Scm {
    let base = ImageBase::new(bytes).expect("memory");
    let medium = crash_medium(&base, CrashImage::new(Default::default(), vec![])).expect("memory");
    Scm::open_on(medium).expect("open")
}

fn on_host(path: &Path, medium: MediumChoice) -> Scm {
    Scm::create(path, Some(BYTES), &Options { medium, ..options() }, OWNER, BORN).expect("a new volume")
}

fn assert_clean(engine: &Scm) {
    let report = engine.check().expect("the medium is sound");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn random_ops_match_the_model() {
    for seed in 0..200 {
        oracle::check(in_memory, seed, 600);
    }
}

/// Compares the engine with the model on each seed, and then with itself after a recovery.
fn match_the_model_and_survive(seeds: Range<u64>, steps: u32, mix: OpMix) {
    let options = oracle::OracleOptions { mix, ..oracle::OracleOptions::default() };
    for seed in seeds {
        oracle::check_with(in_memory, seed, steps, options);
        let engine = in_memory();
        oracle::run(&engine, seed, steps, options).expect("the model's results");
        assert_clean(&engine);
        let before = tree(&engine);
        let survivor = on_image(&engine.volume().medium().snapshot());
        assert_eq!(difference(&before, &tree(&survivor)), None, "after recovery, seed {seed}");
        assert_clean(&survivor);
    }
}

/// Returns a mix of Ops with many limits, owners and project ids.
fn with_limits() -> OpMix {
    OpMix { set_limits: 6, set_attributes: 20, is_sparse: false, ..OpMix::default() }
}

#[test]
fn random_ops_with_quotas_match_the_model() {
    match_the_model_and_survive(5000..5040, 400, with_limits());
}

#[test]
fn limits_and_counts_on_a_disk_survive_close_and_kill() {
    let options = oracle::OracleOptions { mix: with_limits(), ..oracle::OracleOptions::default() };
    let host = tempfile::tempdir().expect("a directory");
    let open = |path: &Path| Scm::open(path, eyrie_medium::PagedOptions::for_host()).expect("open");
    let mut with_limits = 0;
    for seed in 5100..5108 {
        let path = host.path().join(format!("volume-{seed}"));
        let engine = on_host(&path, MediumChoice::Paged);
        oracle::run(&engine, seed, 200, options).expect("the model's results");
        let before = engine.quotas().expect("sound");
        with_limits += u32::from(before.is_some());
        engine.close().expect("close");
        let engine = open(&path);
        assert_eq!(engine.quotas().expect("sound"), before, "after close, seed {seed}");
        assert_clean(&engine);
        engine.sync().expect("sync");
        drop(engine);
        let engine = open(&path);
        assert_eq!(engine.quotas().expect("sound"), before, "after recovery, seed {seed}");
        assert_clean(&engine);
    }
    assert!(with_limits > 0, "no run ends with limits");
}

#[test]
fn random_file_ranges_match_the_model_and_survive_recovery() {
    let mix =
        OpMix { create: 4, write: 30, append: 10, set_size: 10, fallocate: 60, put: 2, ..OpMix::none() };
    match_the_model_and_survive(4000..4040, 300, mix);
}

#[test]
fn volume_reopens_unchanged_after_close_and_kill() {
    let host = tempfile::tempdir().expect("a directory");
    for (seed, medium) in (1000..1060)
        .map(|seed| (seed, MediumChoice::Dram))
        .chain((1060..1080).map(|seed| (seed, MediumChoice::Paged)))
    {
        let path = host.path().join(format!("volume-{seed}"));
        let engine = on_host(&path, medium);
        oracle::run(&engine, seed, 300, oracle::OracleOptions::default()).expect("the model's results");
        assert_clean(&engine);
        let before = tree(&engine);

        engine.close().expect("close");
        let engine = Scm::open(&path, eyrie_medium::PagedOptions::for_host()).expect("open");
        assert!(!engine.recovered(), "a closed volume needs no recovery");
        assert_eq!(difference(&before, &tree(&engine)), None, "after close, seed {seed}");
        assert_clean(&engine);

        // The engine is dropped without a close, as if the process were killed. The sync comes first, because
        // a medium with a page cache keeps only synchronised changes.
        engine.sync().expect("sync");
        drop(engine);
        let engine = Scm::open(&path, eyrie_medium::PagedOptions::for_host()).expect("open");
        assert!(engine.recovered(), "a volume that was not closed is recovered");
        assert_eq!(difference(&before, &tree(&engine)), None, "after recovery, seed {seed}");
        assert_clean(&engine);
    }
}

#[test]
fn random_ops_on_persistent_memory_match_the_model() {
    for seed in 2000..2016 {
        oracle::check(|| on_pmem().0, seed, 400);
    }
}

#[test]
fn ops_on_persistent_memory_are_written_back() {
    for seed in 3000..3010 {
        let (engine, written, file) = on_pmem();
        assert_eq!(engine.volume().medium().kind(), MediumKind::Pmem);
        oracle::run(&engine, seed, 200, oracle::OracleOptions::default()).expect("the model's results");
        let before = tree(&engine);
        let kept = written.bytes();
        assert_written(&engine, &written);

        // After a power failure, only the bytes that were written back and fenced are left.
        let survivor = on_image(&kept);
        assert!(survivor.recovered());
        assert_eq!(difference(&before, &tree(&survivor)), None, "after power failed, seed {seed}");
        assert_clean(&survivor);

        engine.close().expect("close");
        let (medium, written) = pmem_of(&file);
        let engine = Scm::open_on(medium).expect("open");
        assert!(!engine.recovered(), "a closed volume needs no recovery");
        assert_eq!(difference(&before, &tree(&engine)), None, "after close, seed {seed}");
        assert_clean(&engine);
        assert_written(&engine, &written);
    }
}

#[test]
fn files_on_persistent_memory_are_written_back_call_by_call() {
    let (engine, written, _file) = on_pmem();
    let engine = Arc::new(engine);
    let files = Pxfs::new(Arc::clone(&engine), Credentials::root());
    files.create_dir_all("/a/b").expect("created");
    assert_written(&engine, &written);
    for length in [0, 1, 100, 511, 512, 4096, 70_000] {
        let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
        files.write("/a/b/new", &data).expect("written");
        assert_written(&engine, &written);
        files.rename_with("/a/b/new".into(), "/a/file".into(), RenameMode::Replace).expect("renamed");
        assert_written(&engine, &written);
        assert_eq!(files.read("/a/file").expect("read"), data);
    }
    let file = files.options().write(true).open("/a/file").expect("opened");
    file.write_at(&[7; 1000], 33).expect("written");
    assert_written(&engine, &written);
    files.unlink("/a/file".into()).expect("unlinked");
    assert_written(&engine, &written);
}

/// Creates a file `name` in the root, and sets its extended attribute `user.a` to `value`.
fn file_with_xattr(engine: &Scm, name: &[u8], value: &[u8]) -> ObjectId {
    let (dir, id) = (engine.root(), engine.reserve(Kind::File).expect("reserved"));
    let content = Content::Bytes(b"bytes");
    engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: BORN }).expect("created");
    engine
        .apply(&Op::SetXattr { id, name: b"user.a", value, mode: XattrMode::Set, time: BORN })
        .expect("set");
    id
}

#[test]
fn extended_attributes_take_space_and_give_it_back() {
    let engine = in_memory();
    let (dir, time) = (engine.root(), BORN);
    // This file makes the engine allocate the storage of directories and tables before the first measurement.
    file_with_xattr(&engine, b"before", b"1");
    let free = engine.space().free;
    for is_open in [false, true] {
        let id = file_with_xattr(&engine, b"file", &[7; 60_000]);
        let allocated = |id| engine.attributes(id).expect("there").allocated;
        assert!((60_000..80_000).contains(&allocated(id)), "{} bytes", allocated(id));
        assert!(engine.space().free <= free - 60_000);
        let (name, mode) = (b"user.a", XattrMode::Replace);
        engine.apply(&Op::SetXattr { id, name, value: &[8; 5000], mode, time }).expect("replaced");
        assert!((5000..20_000).contains(&allocated(id)), "{} bytes", allocated(id));
        if is_open {
            engine.open(id).expect("there");
        }
        engine.apply(&Op::Unlink { dir, name: b"file", time }).expect("there");
        if is_open {
            let mut value = [0; 5000];
            assert_eq!(engine.xattr(id, name, &mut value).expect("open"), Some(5000));
            assert_eq!(value, [8; 5000]);
            Engine::close(&engine, id);
        }
        assert_eq!(engine.space().free, free, "the space of a removed file is free");
        assert_clean(&engine);
    }
}

#[test]
fn damaged_extended_attributes_are_found_and_harm_no_other_call() {
    let engine = in_memory();
    let value = [0xa5; 300];
    let id = file_with_xattr(&engine, b"file", &value);
    let medium = engine.volume().medium();
    let image = medium.snapshot();
    let at = image.windows(value.len()).position(|bytes| bytes == value).expect("it is somewhere");
    // The head of the attribute's entry precedes the attribute's name.
    let head = Addr::from_raw((at - b"user.a".len() - 6) as u64);
    drop(medium.write(head, &[0xff; 4]).expect("in bounds"));
    let report = engine.check().expect("the medium is sound");
    assert!(report.findings.iter().any(|finding| finding.contains("extended attribute")), "{report:?}");
    assert!(engine.xattr(id, b"user.a", &mut []).is_err());
    assert!(engine.apply(&Op::RemoveXattr { id, name: b"user.a", time: BORN }).is_err());
    let mut bytes = [0; 5];
    assert_eq!(engine.read(id, 0, &mut bytes).expect("sound"), 5);
    engine.apply(&Op::Unlink { dir: engine.root(), name: b"file", time: BORN }).expect("sound");
    assert_clean(&engine);
}
