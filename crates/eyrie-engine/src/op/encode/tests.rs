//! Encoded Ops decode to the same Ops, and bad records are refused.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::{Kind, Version};

/// The parts of an Op, as owned values.
#[derive(Clone, Debug)]
struct Sample {
    variant: u8,
    ids: (ObjectId, ObjectId),
    names: (Vec<u8>, Vec<u8>),
    data: Vec<u8>,
    numbers: (u64, u8),
    owner: Owner,
    change: AttributeChange,
    time: Time,
}

const SINGLE_VARIANTS: u8 = 19;
/// Number of kinds of records. The last kind has this number.
const KINDS: u8 = SINGLE_VARIANTS + 1;

impl Sample {
    fn op(&self) -> Op<'_> {
        let (dir, id) = self.ids;
        let (name, data, time, owner) = (&self.names.0[..], &self.data[..], self.time, self.owner);
        let (number, choice) = self.numbers;
        let set_ids = SetIds::ALL[usize::from(choice)];
        match self.variant {
            0 => {
                let content =
                    [Content::Empty, Content::Bytes(data), Content::Device(number)][usize::from(choice)];
                Op::Create { dir, name, id, owner, content, time }
            }
            1 => Op::Link { dir, name, id, time },
            2 => Op::Unlink { dir, name, time },
            3 => Op::RemoveDirectory { dir, name, time },
            4 => {
                let mode = RenameMode::ALL[number as usize % RenameMode::ALL.len()];
                let whiteout = (choice == 1).then_some(Whiteout { id, owner });
                let (from_dir, from_name, to_dir, to_name) = (dir, name, id, &self.names.1[..]);
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout, time }
            }
            5 => Op::Write { id, offset: number, data, set_ids, time },
            6 => Op::Append { id, data, set_ids, time },
            7 => Op::SetSize { id, size: number, set_ids, time },
            8 => Op::SetAttributes { id, change: self.change, time },
            9 => {
                let mode = [XattrMode::Set, XattrMode::Create, XattrMode::Replace][usize::from(choice)];
                Op::SetXattr { id, name, value: data, mode, time }
            }
            10 => Op::RemoveXattr { id, name, time },
            11 => {
                let mode = FallocateMode::ALL[data.len() % FallocateMode::ALL.len()];
                Op::Fallocate { id, mode, offset: number, length: dir.place(), set_ids, time }
            }
            12 => {
                let version = Version::from_raw([number, dir.raw(), id.raw()]);
                let all = [Condition::Absent, Condition::Present, Condition::Version(version)];
                Op::Expect { dir, name, condition: all[usize::from(choice)] }
            }
            13 => Op::Put { dir, name, id, owner, data, time },
            14 => {
                let (kind, drops_set_gid) = (AclKind::ALL[usize::from(choice) % 2], number % 2 == 0);
                Op::SetAcl { id, kind, acl: data, drops_set_gid, time }
            }
            16 => Op::MarkAccess { id, time },
            17 => {
                let (source_offset, offset, length) = (number, dir.place(), id.place());
                Op::CloneRange { source: dir, source_offset, id, offset, length, set_ids, time }
            }
            15 => Op::CreateUnnamed { dir, id, owner, linkable: choice == 1, time },
            _ => Op::Erase { dir, name, time },
        }
    }
}

fn ids() -> impl Strategy<Value = ObjectId> {
    (any::<u64>(), 1..8u8).prop_map(|(place, kind)| ObjectId::new(place & !63, Kind::from_raw(kind).unwrap()))
}

fn times() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanoseconds)| Time::new(seconds, nanoseconds))
}

fn changes() -> impl Strategy<Value = AttributeChange> {
    (
        (option::of(any::<u16>()), prop::sample::select(&SetIds::ALL[..]), option::of(any::<u64>())),
        option::of(any::<u32>()),
        option::of(any::<u32>()),
        option::of(times()),
        option::of(times()),
        (
            option::of(any::<u8>().prop_map(InodeFlags::from_bits_truncate)),
            any::<bool>(),
            option::of(any::<u32>()),
        ),
    )
        .prop_map(
            |((mode, set_ids, size), uid, gid, accessed, modified, (flags, drops_capability, project))| {
                AttributeChange {
                    mode,
                    size,
                    set_ids,
                    drops_capability,
                    uid,
                    gid,
                    accessed,
                    modified,
                    flags,
                    project,
                }
            },
        )
}

fn samples() -> impl Strategy<Value = Sample> {
    (
        0..SINGLE_VARIANTS,
        (ids(), ids()),
        (vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..20)),
        vec(any::<u8>(), 0..200),
        (any::<u64>(), 0..3u8),
        (any::<u16>(), any::<u32>(), any::<u32>()).prop_map(|(mode, uid, gid)| Owner { mode, uid, gid }),
        changes(),
        times(),
    )
        .prop_map(|(variant, ids, names, data, numbers, owner, change, time)| Sample {
            variant,
            ids,
            names,
            data,
            numbers,
            owner,
            change,
            time,
        })
}

/// Encodes samples. A single sample is encoded as its own Op, several samples as one batch.
fn record(samples: &[Sample]) -> Vec<u8> {
    let mut out = Vec::new();
    let ops: Vec<Op<'_>> = samples.iter().map(Sample::op).collect();
    match *ops.as_slice() {
        [op] => encode(&op, &mut out),
        _ => encode(
            &Op::Batch {
                dir: ObjectId::new(64, Kind::Directory),
                ops: &ops,
                time: Time::new(i64::MIN, 999_999_999),
            },
            &mut out,
        ),
    }
    out
}

/// Corrects the checksum of a changed record.
fn set_checksum(record: &mut [u8]) {
    if record.len() >= HEADER_SIZE {
        let sum = layout::checksum(record);
        record[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

proptest! {
    #[test]
    fn every_op_decodes_to_itself(sample in samples(), before in vec(any::<u8>(), 0..20)) {
        let mut out = before.clone();
        encode(&sample.op(), &mut out);
        let length = out.len() - before.len();
        out.extend_from_slice(b"what follows");
        let (decoded, taken) = decode(&out[before.len()..]).unwrap();
        prop_assert_eq!(decoded.op(), sample.op());
        prop_assert_eq!(taken, length);
    }

    #[test]
    fn every_batch_decodes_to_itself(parts in vec(samples(), 0..6)) {
        let ops: Vec<Op<'_>> = parts.iter().map(Sample::op).collect();
        let dir = ObjectId::new(1 << 41, Kind::Directory);
        let op = Op::Batch { dir, ops: &ops, time: Time::new(-1, 0) };
        let mut out = Vec::new();
        encode(&op, &mut out);
        let (decoded, taken) = decode(&out).unwrap();
        prop_assert_eq!(decoded.op(), op);
        prop_assert_eq!(taken, out.len());
    }

    #[test]
    fn a_flipped_bit_is_refused(
        parts in vec(samples(), 1..3),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let mut out = record(&parts);
        let at = at.index(out.len());
        out[at] ^= 1 << bit;
        prop_assert!(decode(&out).is_err());
    }

    #[test]
    fn a_record_cut_short_is_refused(parts in vec(samples(), 1..3), at in any::<prop::sample::Index>()) {
        let out = record(&parts);
        prop_assert_eq!(decode(&out[..at.index(out.len())]), Err(DecodeError::Truncated));
    }

    #[test]
    fn forged_record_never_panics(
        parts in vec(samples(), 1..4),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut out = record(&parts);
        for (at, byte) in changes {
            let at = at.index(out.len());
            out[at] = byte;
        }
        set_checksum(&mut out);
        if let Ok((decoded, length)) = decode(&out) {
            let mut again = Vec::new();
            encode(&decoded.op(), &mut again);
            prop_assert_eq!(again, &out[..length]);
        }
    }

    #[test]
    fn noise_never_panics(mut bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err());
        let length = bytes.len() as u64;
        if bytes.len() >= HEADER_SIZE {
            let kind = 1 + bytes[14] % KINDS;
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
            bytes[14..16].copy_from_slice(&[kind, 0]);
            set_checksum(&mut bytes);
            // The header is right, so the decoder reads the noise behind it. In a batch, the decoder reads
            // the noise as the header of another record.
            let decoded = decode(&bytes);
            let unread = decoded.as_ref().is_err_and(|error| {
                matches!(error, DecodeError::Checksum | DecodeError::Version(_) | DecodeError::Kind(_))
            });
            prop_assert!(!unread || kind == OpKind::Batch as u8, "{:?}", decoded);
        }
    }
}

fn encoded_erase() -> Vec<u8> {
    let op = Op::Erase { dir: ObjectId::new(64, Kind::Directory), name: b"key", time: Time::new(1, 2) };
    let mut out = Vec::new();
    encode(&op, &mut out);
    out
}

#[test]
fn the_bytes_are_fixed() {
    let expected = [
        43, 0, 0, 0, 0, 0, 0, 0, // length
        0, 0, 0, 0, // checksum
        5, 0, 11, 0, // version, kind
        66, 0, 0, 0, 0, 0, 0, 0, // dir
        3, 0, 0, 0, // name size
        1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, // stamp
        b'k', b'e', b'y',
    ];
    let mut record = encoded_erase();
    record[8..12].fill(0);
    assert_eq!(record, expected);
}

#[test]
fn unknown_versions_and_kinds_are_told_apart() {
    let mut record = encoded_erase();
    record[12] = 1;
    set_checksum(&mut record);
    assert_eq!(decode(&record), Err(DecodeError::Version(1)));
    record[12..14].copy_from_slice(&VERSION.to_le_bytes());
    record[14] = KINDS + 1;
    set_checksum(&mut record);
    assert_eq!(decode(&record), Err(DecodeError::Kind((KINDS + 1).into())));
    record[14] = KINDS;
    set_checksum(&mut record);
    assert!(!matches!(decode(&record), Err(DecodeError::Kind(_))), "the last kind");
}

#[test]
fn oversized_lengths_are_refused() {
    let mut out = Vec::new();
    let op = Op::Batch { dir: ObjectId::new(64, Kind::Directory), ops: &[], time: Time::default() };
    encode(&op, &mut out);
    out[HEADER_SIZE + 8..HEADER_SIZE + 12].fill(0xff);
    set_checksum(&mut out);
    assert_eq!(decode(&out), Err(DecodeError::Truncated));
    let mut record = encoded_erase();
    record[..8].fill(0xff);
    assert_eq!(decode(&record), Err(DecodeError::Truncated));
    record[..8].copy_from_slice(&15u64.to_le_bytes());
    assert!(matches!(decode(&record), Err(DecodeError::Malformed(_))));
}

#[test]
fn a_batch_within_a_batch_is_refused() {
    let dir = ObjectId::new(64, Kind::Directory);
    let inner = [Op::Batch { dir, ops: &[], time: Time::default() }];
    let mut out = Vec::new();
    encode(&Op::Batch { dir, ops: &inner, time: Time::default() }, &mut out);
    assert!(matches!(decode(&out), Err(DecodeError::Malformed(_))));
}

#[test]
fn unknown_conditions_are_refused() {
    let dir = ObjectId::new(64, Kind::Directory);
    let mut out = Vec::new();
    encode(&Op::Expect { dir, name: b"key", condition: Condition::Present }, &mut out);
    // The first change makes the condition unknown. The second adds a version to a condition that has none.
    for (at, byte) in [(HEADER_SIZE + 8, 3), (HEADER_SIZE + 16, 1)] {
        let mut record = out.clone();
        record[at] = byte;
        set_checksum(&mut record);
        assert_eq!(decode(&record), Err(DecodeError::Malformed("unknown condition of a key")));
    }
}

#[test]
fn unknown_fallocate_fields_are_refused() {
    let id = ObjectId::new(64, Kind::File);
    let (mode, time) = (FallocateMode::UnshareRangeKeepSize, Time::default());
    let mut out = Vec::new();
    encode(&Op::Fallocate { id, mode, offset: 4096, length: 8192, set_ids: SetIds::Keep, time }, &mut out);
    out[HEADER_SIZE + 24] += 1;
    set_checksum(&mut out);
    assert_eq!(decode(&out), Err(DecodeError::Malformed("unknown mode of a fallocate")));
    out[HEADER_SIZE + 24] -= 1;
    out[HEADER_SIZE + 28] = 3;
    set_checksum(&mut out);
    assert_eq!(decode(&out), Err(DecodeError::Malformed("set-id bits to drop")));
}
