//! Uses an image as any program might use a volume. Errors are allowed. Panics and hangs are failures.

use std::collections::HashSet;

use crate::acls::acl;
use eyrie_engine::access::{self, AclKind, Credentials};
use eyrie_engine::quota::{QUOTA_XATTR, QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable};
use eyrie_engine::scm::Scm;
use eyrie_engine::{
    AttributeChange, Condition, Content, Engine, FallocateMode, Kind, ObjectId, Op, Owner, RenameMode,
    SetIds, Time, Whiteout, XattrMode,
};
use eyrie_medium::Medium;

/// Maximum number of objects to read.
const MAX_OBJECTS: usize = 2000;
/// Maximum number of entries of a directory to list.
const MAX_ENTRIES: usize = 4000;
/// Maximum number of bytes to read at either end of an object, and at each start of data or of a hole.
const MAX_BYTES: usize = 16 << 10;
/// Maximum number of starts of data and of holes to look for in a file, and of objects whose attributes are
/// read again after the changes.
const MAX_PIECES: usize = 16;
/// Maximum number of entries whose objects are changed. These entries are spread over all entries. Before
/// these changes, the first directories among the entries are changed, but at most half as many.
const CHANGED: usize = 6;

const NOW: Time = Time { seconds: 7000, nanoseconds: 7 };
const OWNER: Owner = Owner { mode: 0o644, uid: 1, gid: 1 };

/// The result of the use of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Examined {
    /// The engine refused to open the image.
    Refused,
    /// The check before the changes failed or found problems.
    Broken,
    /// The check before the changes found no problem.
    Sound,
}

/// Opens the volume on `medium`, reads reachable objects, checks the volume, changes some objects, checks the
/// volume again, and closes it. Reads at most 2000 objects.
pub fn examine(medium: Medium) -> Examined {
    let Ok(engine) = Scm::open_on(medium) else { return Examined::Refused };
    let found = walk(&engine);
    let checked = engine.check();
    change(&engine, &found);
    found.iter().take(MAX_PIECES).for_each(|entry| _ = engine.attributes(entry.id));
    limit(&engine, &found);
    let _ = engine.check();
    let _ = engine.close();
    match checked {
        Ok(report) if report.is_clean() => Examined::Sound,
        _ => Examined::Broken,
    }
}

/// An entry of a directory.
struct ListedEntry {
    dir: ObjectId,
    name: Vec<u8>,
    id: ObjectId,
}

/// Reads the root and the objects below it, up to [`MAX_OBJECTS`] objects. Returns the entries of the
/// directories that were read.
fn walk(engine: &Scm) -> Vec<ListedEntry> {
    let mut seen = HashSet::from([engine.root()]);
    let (mut found, mut at) = (Vec::new(), 0);
    let mut id = engine.root();
    loop {
        look_at(engine, id);
        if id.is_directory() {
            let mut count = 0;
            let _ = engine.list(id, 0, &mut |entry| {
                count += 1;
                found.push(ListedEntry { dir: id, name: entry.name.to_vec(), id: entry.id });
                count < MAX_ENTRIES
            });
        }
        // Several entries of a damaged volume may name the same object. Each object is read once.
        loop {
            let Some(entry) = found.get(at) else { return found };
            at += 1;
            let _ = engine.lookup(entry.dir, &entry.name);
            if seen.insert(entry.id) {
                id = entry.id;
                break;
            }
        }
        if seen.len() > MAX_OBJECTS {
            return found;
        }
    }
}

/// Reads one object: its attributes, its extended attributes, and its bytes at either end and at the first
/// starts of data and of holes.
fn look_at(engine: &Scm, id: ObjectId) {
    let attributes = engine.attributes(id);
    let _ = (engine.birth(id), engine.owner(id));
    let mut names = Vec::new();
    let _ = engine.xattr_names(id, &mut |name| names.push(name.to_vec()));
    let mut buffer = vec![0; MAX_BYTES];
    for name in &names {
        let _ = engine.xattr(id, name, &mut buffer);
    }
    let _ = engine.xattr(id, b"user.none", &mut []);
    let Ok(attributes) = attributes else { return };
    let _ = engine.read(id, 0, &mut buffer);
    let _ = engine.read(id, attributes.size.saturating_sub(MAX_BYTES as u64), &mut buffer);
    let guard = eyrie_medium::epoch::pin();
    let _ = (engine.view(id, (0, u64::MAX), &guard), engine.view(id, (5000, 9000), &guard));
    drop(guard);
    let _ = engine.version(id);
    let mut at = 0;
    for turn in 0..MAX_PIECES {
        match engine.seek(id, at, turn % 2 == 1) {
            Ok(Some(next)) if next >= at => at = next,
            _ => break,
        }
        let _ = engine.read(id, at, &mut buffer);
    }
}

/// Makes a file without a name, opens it, and gives it a name.
fn link_unnamed(engine: &Scm, dir: ObjectId, number: u8) {
    let Ok(id) = engine.reserve(Kind::File) else { return };
    let owner = Owner { mode: 0o600, uid: 0, gid: 0 };
    let made = engine.apply(&Op::CreateUnnamed { dir, id, owner, linkable: true, time: NOW });
    if made.is_err() {
        return engine.unreserve(id);
    }
    if engine.open(id).is_ok() {
        let _ = engine.apply(&Op::Append { id, data: &[5; 5000], set_ids: SetIds::Keep, time: NOW });
        let _ = engine.apply(&Op::Link { dir, name: &[b'\x05', number], id, time: NOW });
        engine.close(id);
    }
}

/// Makes a file in a directory, moves it with a whiteout at the old name, and removes both names.
fn leave_whiteout(engine: &Scm, dir: ObjectId) {
    create(engine, dir, b"\x06old", Kind::File, Content::Empty);
    let Ok(id) = engine.reserve(Kind::CharDevice) else { return };
    let moved = engine.apply(&Op::Rename {
        from_dir: dir,
        from_name: b"\x06old",
        to_dir: dir,
        to_name: b"\x06new",
        mode: RenameMode::Whiteout,
        whiteout: Some(Whiteout { id, owner: Owner { mode: 0, uid: 0, gid: 0 } }),
        time: NOW,
    });
    if moved.is_err() {
        return engine.unreserve(id);
    }
    for name in [b"\x06old", b"\x06new"] {
        let _ = engine.apply(&Op::Unlink { dir, name, time: NOW });
    }
}

/// Applies a few Ops to some of the entries.
fn change(engine: &Scm, found: &[ListedEntry]) {
    let time = NOW;
    let root = engine.root();
    let file = create(engine, root, b"\x01file", Kind::File, Content::Bytes(&[7; 5000]));
    let dir = create(engine, root, b"\x01dir", Kind::Directory, Content::Empty).unwrap_or(root);
    let directories = found.iter().filter(|entry| entry.id.is_directory()).take(CHANGED / 2);
    let step = (found.len() / CHANGED).max(1);
    for (number, entry) in directories.chain(found.iter().step_by(step).take(CHANGED)).enumerate() {
        let ListedEntry { dir: from, ref name, id } = *entry;
        let apply = |op: Op<'_>| _ = engine.apply(&op);
        let new = [b'\x02', number as u8];
        match id.kind() {
            Kind::Directory => {
                create(engine, id, b"\x01new", Kind::File, Content::Bytes(b"new"));
                apply(Op::Unlink { dir: id, name: b"\x01new", time });
                apply(Op::RemoveDirectory { dir: from, name, time });
            }
            Kind::File => change_bytes(engine, id),
            _ => {}
        }
        apply(Op::SetAttributes {
            id,
            change: AttributeChange { mode: Some(0o600), ..Default::default() },
            time,
        });
        apply(Op::MarkAccess { id, time });
        apply(Op::SetXattr { id, name: b"user.new", value: &[4; 300], mode: XattrMode::Set, time });
        apply(Op::RemoveXattr { id, name: b"user.one", time });
        for kind in AclKind::ALL {
            apply(Op::SetAcl { id, kind, acl: &acl(6, 0o7_654_321), drops_set_gid: true, time });
            if id.is_directory() {
                create(engine, id, b"\x01heir", Kind::Directory, Content::Empty);
                apply(Op::RemoveDirectory { dir: id, name: b"\x01heir", time });
            }
            let _ = access::protection(engine, id, &Credentials::new(1000, 1000, &[]));
            apply(Op::SetAcl { id, kind, acl: &[], drops_set_gid: false, time });
        }
        apply(Op::Link { dir, name: &[b'\x03', number as u8], id, time });
        if id.is_directory() {
            link_unnamed(engine, id, number as u8);
            leave_whiteout(engine, id);
        }
        let moved = |mode, to_dir, to_name| Op::Rename {
            from_dir: from,
            from_name: name,
            to_dir,
            to_name,
            mode,
            whiteout: None,
            time,
        };
        apply(moved(RenameMode::NoReplace, dir, &new));
        match number % 3 {
            0 => apply(Op::Unlink { dir, name: &new, time }),
            1 => apply(Op::Rename {
                from_dir: dir,
                from_name: &new,
                to_dir: from,
                to_name: name,
                mode: RenameMode::Replace,
                whiteout: None,
                time,
            }),
            _ => put(engine, dir, &new),
        }
    }
    if let Some(id) = file {
        let _ = engine.apply(&Op::Append { id, data: &[9; 40_000], set_ids: SetIds::Keep, time });
        let _ = engine.apply(&Op::Unlink { dir: root, name: b"\x01file", time });
    }
}

/// Sets limits of quotas, so that the engine counts the usage of all objects. Then gives some objects to the
/// limited accounts, changes them, and removes them.
fn limit(engine: &Scm, found: &[ListedEntry]) {
    let apply = |op: Op<'_>| _ = engine.apply(&op);
    let mut table = QuotaTable::default();
    let limit = |hard| QuotaLimit { soft: 1, hard, deadline: 0 };
    for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Tree] {
        let limits = QuotaLimits { bytes: limit(100_000), files: limit(5) };
        table.set(QuotaId { kind, number: 1 }, limits).expect("possible limits");
    }
    let (id, name, value, mode, time) = (engine.root(), QUOTA_XATTR, &table.encode(), XattrMode::Set, NOW);
    apply(Op::SetXattr { id, name, value, mode, time });
    for &ListedEntry { dir, ref name, id } in found.iter().take(CHANGED) {
        let change = AttributeChange { uid: Some(1), project: Some(1), ..AttributeChange::default() };
        apply(Op::SetAttributes { id, change, time });
        apply(Op::Append { id, data: &[6; 60_000], set_ids: SetIds::Keep, time });
        apply(Op::Unlink { dir, name, time });
    }
    create(engine, id, b"\x07limited", Kind::File, Content::Bytes(&[7; 5000]));
    let _ = engine.quotas();
}

/// Applies Ops that change the bytes of a file.
fn change_bytes(engine: &Scm, id: ObjectId) {
    let (time, set_ids) = (NOW, SetIds::Keep);
    let apply = |op: Op<'_>| _ = engine.apply(&op);
    apply(Op::Write { id, offset: 3, data: &[1; 300], set_ids, time });
    apply(Op::Write { id, offset: 10_000, data: &[2; 5000], set_ids, time });
    apply(Op::Append { id, data: &[3; 200], set_ids, time });
    for mode in FallocateMode::ALL {
        apply(Op::Fallocate { id, mode, offset: 4096, length: 8192, set_ids, time });
    }
    let (source, source_offset, offset, length) = (id, 0, 8192, 4096);
    apply(Op::CloneRange { source, source_offset, id, offset, length, set_ids, time });
    apply(Op::Write { id, offset, data: &[5; 8], set_ids, time });
    apply(Op::SetSize { id, size: 5000, set_ids, time });
    apply(Op::SetSize { id, size: 1 << 40, set_ids, time });
}

fn create(engine: &Scm, dir: ObjectId, name: &[u8], kind: Kind, content: Content<'_>) -> Option<ObjectId> {
    let id = engine.reserve(kind).ok()?;
    let done = engine.apply(&Op::Create { dir, name, id, owner: OWNER, content, time: NOW });
    if done.is_err() {
        engine.unreserve(id);
        return None;
    }
    Some(id)
}

/// Sets the value of a key, erases the key under a condition on its version, and sets the value again.
fn put(engine: &Scm, dir: ObjectId, name: &[u8]) {
    set(engine, dir, name);
    if let Ok(Some(version)) =
        engine.lookup(dir, name).and_then(|id| id.map(|id| engine.version(id)).transpose())
    {
        let expect = Op::Expect { dir, name, condition: Condition::Version(version) };
        let _ =
            engine.apply(&Op::Batch { dir, ops: &[expect, Op::Erase { dir, name, time: NOW }], time: NOW });
    }
    set(engine, dir, name);
}

fn set(engine: &Scm, dir: ObjectId, name: &[u8]) {
    let Ok(id) = engine.reserve(Kind::File) else { return };
    let done = engine.apply(&Op::Put { dir, name, id, owner: OWNER, data: &[5; 100], time: NOW });
    if !done.is_ok_and(|applied| applied.created) {
        engine.unreserve(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::bases;

    #[test]
    fn put_replaces_a_value_before_it_erases_the_key() {
        let engine = Scm::open_on(bases()[0].copy()).expect("sound");
        let (root, name) = (engine.root(), b"\x01value");
        let id = create(&engine, root, name, Kind::File, Content::Bytes(b"old")).expect("room");
        engine.open(id).expect("alive");
        put(&engine, root, name);
        // The open object shows the value that it had when the key was erased.
        let mut value = [0; 3];
        assert_eq!(engine.read(id, 0, &mut value).expect("alive"), 3);
        assert_eq!(value, [5; 3]);
        let last = engine.lookup(root, name).expect("sound");
        assert!(last.is_some_and(|last| last != id), "{last:?}");
        Engine::close(&engine, id);
    }
}
