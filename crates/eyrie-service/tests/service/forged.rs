//! Random Ops with ids that are equal or close to the ids of live objects. The service refuses or applies
//! each of them, and the volume stays sound.

use eyrie_engine::access::AclKind;
use eyrie_engine::{
    AttributeChange, Condition, Content, Engine, FallocateMode, InodeFlags, Kind, ObjectId, Op, Owner,
    RenameMode, SetIds, Time, Version, Whiteout, XattrMode,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::hostile::{RawSession, change_requests_while_they_are_read};
use super::*;

const NAMES: [&[u8]; 6] = [b"egg", b"dir", b"a", b"b", b"/", b"\0"];
const KINDS: [Kind; 4] = [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo];
/// The head of an ACL, and five entries with their tags, rights and ids.
const ACL: [u8; 44] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 255, 255, 255, 255, //
    2, 0, 6, 0, 232, 3, 0, 0, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    16, 0, 6, 0, 255, 255, 255, 255, //
    32, 0, 0, 0, 255, 255, 255, 255,
];

fn one_of<T: Copy>(random: &mut StdRng, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

/// The random parts of an Op.
struct Parts {
    dir: ObjectId,
    other: ObjectId,
    object: ObjectId,
    name: &'static [u8],
    to_name: &'static [u8],
    /// A small number more often than a large one.
    number: u64,
    length: u64,
    data: Vec<u8>,
    owner: Owner,
    set_ids: SetIds,
    time: Time,
}

impl Parts {
    fn draw(random: &mut StdRng, live: &[ObjectId]) -> Parts {
        let id = |random: &mut StdRng| {
            let id = one_of(random, live);
            match random.random_range(0..6) {
                0 => ObjectId::new(id.place() + 256 * random.random_range(0..8), id.kind()),
                1 => ObjectId::new(id.place(), one_of(random, &KINDS)),
                _ => id,
            }
        };
        let number = |random: &mut StdRng| {
            let number = random.random::<u64>() >> random.random_range(0..64);
            if random.random() { number & !4095 } else { number }
        };
        Parts {
            dir: id(random),
            other: id(random),
            object: id(random),
            name: one_of(random, &NAMES),
            to_name: one_of(random, &NAMES),
            number: number(random),
            length: number(random),
            data: vec![2; random.random_range(0..9000)],
            owner: Owner { mode: random.random_range(0..0o10000), uid: random.random_range(0..2), gid: 0 },
            set_ids: one_of(random, &[SetIds::Keep, SetIds::DropAsMember, SetIds::DropAsStranger]),
            time: Time::new(random.random(), random.random_range(0..1_000_000_000)),
        }
    }

    /// Returns an Op that may be a part of a batch.
    fn part(&self, random: &mut StdRng) -> Op<'_> {
        let Parts { dir, object: id, name, ref data, owner, time, .. } = *self;
        let version = Condition::Version(Version::from_raw([self.number, self.length, 0]));
        match random.random_range(0..3) {
            0 => Op::Put { dir, name, id, owner, data, time },
            1 => Op::Erase { dir, name, time },
            _ => {
                let condition = one_of(random, &[Condition::Absent, Condition::Present, version]);
                Op::Expect { dir, name, condition }
            }
        }
    }

    fn op<'a>(&'a self, random: &mut StdRng, ops: &'a [Op<'a>]) -> Op<'a> {
        let Parts { dir, object: id, name, ref data, owner, set_ids, time, .. } = *self;
        let (offset, length) = (self.number, self.length);
        match random.random_range(0..19) {
            0 => {
                let all = [Content::Empty, Content::Bytes(data), Content::Device(self.number)];
                Op::Create { dir, name, id, owner, content: one_of(random, &all), time }
            }
            1 => Op::CreateUnnamed { dir, id, owner, linkable: random.random(), time },
            2 => Op::Link { dir, name, id, time },
            3 => Op::Unlink { dir, name, time },
            4 => Op::RemoveDirectory { dir, name, time },
            5 => {
                let (from_dir, from_name, to_dir, to_name) = (dir, name, self.other, self.to_name);
                let modes =
                    [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::Whiteout];
                let whiteout = random.random::<bool>().then_some(Whiteout { id, owner });
                let mode = one_of(random, &modes);
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time }
            }
            6 => Op::Write { id, offset, data, set_ids, time },
            7 => Op::Append { id, data, set_ids, time },
            8 => Op::SetSize { id, size: offset, set_ids, time },
            9 => Op::SetAttributes { id, change: self.change(random), time },
            10 => Op::MarkAccess { id, time },
            11 => {
                let mode = one_of(random, &FallocateMode::ALL);
                Op::Fallocate { id, mode, offset, length, set_ids, time }
            }
            12 => {
                let (source, source_offset) = (self.other, self.length & !4095);
                let length = [0, 4096, self.length][random.random_range(0..3)];
                Op::CloneRange { source, source_offset, id, offset, length, set_ids, time }
            }
            13 => {
                let names: [&[u8]; 4] = [b"user.a", b"security.capability", b"trusted.a", b"a"];
                let mode = one_of(random, &[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
                Op::SetXattr { id, name: one_of(random, &names), value: data, mode, time }
            }
            14 => Op::RemoveXattr { id, name: one_of(random, &[&b"user.a"[..], b"b"]), time },
            15 => {
                let acl = &ACL[..one_of(random, &[0, 4, 28, 36, 43, 44])];
                Op::SetAcl {
                    id,
                    kind: one_of(random, &AclKind::ALL),
                    acl,
                    drops_set_gid: random.random(),
                    time,
                }
            }
            16 => Op::Batch { dir, ops, time },
            _ => self.part(random),
        }
    }

    fn change(&self, random: &mut StdRng) -> AttributeChange {
        let flags = InodeFlags::from_bits_truncate(self.number as u8);
        AttributeChange {
            mode: Some(self.owner.mode),
            uid: random.random::<bool>().then_some(self.owner.uid),
            gid: random.random::<bool>().then_some(self.owner.gid),
            size: random.random_ratio(1, 4).then_some(self.length),
            accessed: random.random::<bool>().then_some(self.time),
            modified: random.random::<bool>().then_some(self.time),
            // Flags that forbid changes are rare, because they stay.
            flags: random.random_ratio(1, 1000).then_some(flags),
            set_ids: self.set_ids,
            drops_capability: random.random(),
            ..AttributeChange::default()
        }
    }
}

/// The environment variable `EYRIE_TEST_FORGED_OPS` gives another number of Ops, for a long run.
#[test]
fn forged_ops_leave_a_sound_volume() {
    let usual = if ON_DISK.get() { 30_000 } else { 100_000 };
    let count = std::env::var("EYRIE_TEST_FORGED_OPS").map_or(usual, |count| count.parse().unwrap());
    let mut served = Served::new(32 << 20);
    let files = served.files();
    files.create_dir("/dir").unwrap();
    files.write("/egg", vec![1; 10_000]).unwrap();
    let session = RawSession::open(&served);
    let mut random = StdRng::seed_from_u64(1);
    let engine = files.engine();
    let mut live = vec![
        engine.root(),
        engine.lookup(engine.root(), b"dir").unwrap().unwrap(),
        engine.lookup(engine.root(), b"egg").unwrap().unwrap(),
    ];
    let fixed = live.len();
    let mut accepted = std::collections::BTreeMap::new();
    for step in 0..count {
        if step % 500 == 0 {
            // The session has used or lost most of the earlier ids.
            live.truncate(fixed);
            let kinds = [Kind::File, Kind::Directory, Kind::File, Kind::Symlink, Kind::CharDevice];
            // The forged Ops may have filled the volume.
            live.extend(kinds.iter().filter_map(|kind| session.try_reserve(*kind).ok()));
        }
        let parts: Vec<_> = (0..4).map(|_| Parts::draw(&mut random, &live)).collect();
        let in_batch = random.random_range(0..4);
        let ops: Vec<_> = parts[1..1 + in_batch].iter().map(|parts| parts.part(&mut random)).collect();
        let op = parts[0].op(&mut random, &ops);
        let kind = format!("{op:?}").split([' ', '{']).next().unwrap_or_default().to_owned();
        *accepted.entry(kind).or_insert(0) += usize::from(session.apply(&op) == 0);
    }
    let total: usize = accepted.values().sum();
    assert!(total > count / 100, "{accepted:?} were accepted");
    // A condition alone changes nothing, so it is refused.
    let refused: Vec<_> = accepted.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| kind).collect();
    assert_eq!(refused, ["Expect"], "{accepted:?}");
    change_requests_while_they_are_read(&session, &files);
    drop((files, session));
    served.stop();
}

on_disk! { forged_ops_leave_a_sound_volume }
