//! Tests of the rights that a service requires for Ops.

use super::*;
use crate::access::AclKind;
use crate::model::Model;
use crate::{Condition, FallocateMode, InodeFlags, Kind, XattrMode};

const ROOT: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const NOW: Time = Time::new(1000, 0);

/// A volume with the directories `/shared`, which all may change, and `/sticky`, where only owners remove
/// entries. Each has a file `egg` of user 1.
struct Nest {
    model: Model,
    shared: ObjectId,
    sticky: ObjectId,
    egg: ObjectId,
}

impl Nest {
    fn new() -> Nest {
        let model = Model::new(ObjectId::new(64, Kind::Directory), ROOT, NOW);
        let make = |dir, name: &[u8], kind, owner| {
            let id = model.reserve(kind).expect("room");
            let op = Op::Create { dir, name, id, owner, content: Content::Empty, time: NOW };
            model.apply(&op).expect("it is new");
            id
        };
        let root = model.root();
        let shared = make(root, b"shared", Kind::Directory, Owner { mode: 0o777, ..ROOT });
        let sticky = make(root, b"sticky", Kind::Directory, Owner { mode: 0o1777, ..ROOT });
        let of_one = Owner { mode: 0o6755, uid: 1, gid: 1 };
        make(sticky, b"egg", Kind::File, of_one);
        let egg = make(shared, b"egg", Kind::File, of_one);
        Nest { model, shared, sticky, egg }
    }

    fn ask<'o>(&self, uid: u32, op: &Op<'o>) -> Result<Op<'o>> {
        let who = Credentials::new(uid, uid, &[]);
        let rules = AccessRules::default();
        Requester { engine: &self.model, who: &who, rules, now: NOW }.authorize(op)
    }

    fn is_refused(&self, uid: u32, op: &Op<'_>) -> bool {
        matches!(self.ask(uid, op), Err(Error::AccessDenied | Error::NotPermitted))
    }
}

#[test]
fn clone_needs_rights_on_both_files() {
    let nest = Nest::new();
    let make = |name: &[u8], mode, uid| {
        let id = nest.model.reserve(Kind::File).expect("room");
        let owner = Owner { mode, uid, gid: uid };
        let op = Op::Create { dir: nest.shared, name, id, owner, content: Content::Bytes(b"x"), time: NOW };
        nest.model.apply(&op).expect("it is new");
        id
    };
    let (secret, open, mine) = (make(b"s", 0o200, 1), make(b"o", 0o644, 1), make(b"m", 0o400, 2));
    let clone = |source, id| Op::CloneRange {
        source,
        source_offset: 0,
        id,
        offset: 0,
        length: 0,
        set_ids: SetIds::Keep,
        time: NOW,
    };
    assert!(nest.is_refused(2, &clone(secret, mine)), "the user may not read the source");
    assert!(nest.is_refused(2, &clone(mine, open)), "the user may not write to the target");
    assert!(nest.ask(2, &clone(open, mine)).is_ok(), "an owner may have a handle for writing");
    assert!(nest.ask(1, &clone(secret, open)).is_ok(), "an owner may have a handle for reading");
    let drops = nest.ask(0, &clone(secret, mine)).expect("root");
    assert_eq!(drops, clone(secret, mine));
}

#[test]
fn user_changes_only_what_its_rights_allow() {
    let nest = Nest::new();
    let (root, id, time, set_ids) = (nest.model.root(), nest.egg, NOW, SetIds::Keep);
    let new = nest.model.reserve(Kind::File).expect("room");
    let mine = Owner { mode: 0o644, uid: 2, gid: 2 };
    let create = |dir, owner| Op::Create { dir, name: b"a", id: new, owner, content: Content::Empty, time };
    let put = |dir, name| Op::Put { dir, name, id: new, owner: mine, data: b"x", time };
    let set = |change| Op::SetAttributes { id, change, time };
    let refused = [
        create(root, mine),
        create(nest.shared, Owner { uid: 1, ..mine }),
        create(nest.shared, Owner { gid: 1, ..mine }),
        Op::CreateUnnamed { dir: root, id: new, owner: mine, linkable: true, time },
        Op::CreateUnnamed {
            dir: nest.shared,
            id: new,
            owner: Owner { uid: 1, ..mine },
            linkable: true,
            time,
        },
        Op::Link { dir: nest.shared, name: b"a", id, time },
        Op::Unlink { dir: nest.sticky, name: b"egg", time },
        Op::RemoveDirectory { dir: root, name: b"shared", time },
        Op::Write { id, offset: 0, data: b"x", set_ids, time },
        Op::Append { id, data: b"x", set_ids, time },
        Op::SetSize { id, size: 0, set_ids, time },
        set(AttributeChange { mode: Some(0o777), ..AttributeChange::default() }),
        set(AttributeChange { uid: Some(2), ..AttributeChange::default() }),
        set(AttributeChange { size: Some(0), ..AttributeChange::default() }),
        set(AttributeChange { modified: Some(NOW), ..AttributeChange::default() }),
        set(AttributeChange { set_ids: SetIds::DropAsStranger, ..AttributeChange::default() }),
        Op::SetXattr { id, name: b"user.a", value: b"x", mode: XattrMode::Set, time },
        Op::RemoveXattr { id, name: b"user.a", time },
        Op::SetAcl { id, kind: AclKind::Access, acl: &[], drops_set_gid: false, time },
        put(root, b"a"),
        put(nest.shared, b"egg"),
        put(nest.sticky, b"egg"),
        Op::Batch { dir: root, ops: &[put(root, b"a")], time },
        Op::Batch { dir: nest.shared, ops: &[put(nest.shared, b"a"), put(nest.shared, b"egg")], time },
        Op::Rename {
            from_dir: nest.sticky,
            from_name: b"egg",
            to_dir: nest.shared,
            to_name: b"a",
            mode: RenameMode::Replace,
            whiteout: None,
            time,
        },
        Op::Rename {
            from_dir: root,
            from_name: b"shared",
            to_dir: nest.sticky,
            to_name: b"a",
            mode: RenameMode::Replace,
            whiteout: None,
            time,
        },
    ];
    let whiteout = |owner| {
        let id = nest.model.reserve(Kind::CharDevice).expect("room");
        Op::Rename {
            from_dir: nest.shared,
            from_name: b"egg",
            to_dir: nest.shared,
            to_name: b"a",
            mode: RenameMode::Whiteout,
            whiteout: Some(Whiteout { id, owner }),
            time,
        }
    };
    assert!(nest.is_refused(2, &whiteout(Owner { uid: 1, ..mine })), "a whiteout of another user");
    assert!(nest.ask(2, &whiteout(mine)).is_ok());
    for op in refused {
        assert!(nest.is_refused(2, &op), "{op:?}");
        assert!(nest.ask(0, &op).is_ok(), "root: {op:?}");
    }
    let unnamed = Op::CreateUnnamed { dir: nest.shared, id: new, owner: mine, linkable: false, time };
    for op in [unnamed, create(nest.shared, mine), put(nest.shared, b"a"), put(nest.sticky, b"a")] {
        assert_eq!(nest.ask(2, &op).expect("the directory is shared"), op);
    }
}

/// The owner is not in the group of the file, so the owner could not set the bit of the group again.
#[test]
fn owner_puts_no_program_of_a_foreign_group() {
    let nest = Nest::new();
    let id = nest.model.reserve(Kind::File).expect("room");
    let mine = Owner { mode: 0o644, uid: 1, gid: 1 };
    let put = Op::Put { dir: nest.shared, name: b"egg", id, owner: mine, data: b"x", time: NOW };
    let change = AttributeChange { gid: Some(3), ..AttributeChange::default() };
    assert!(nest.ask(1, &put).is_ok(), "the group of the file is that of the user");
    nest.model.apply(&Op::SetAttributes { id: nest.egg, change, time: NOW }).expect("a file");
    assert!(nest.is_refused(1, &put) && nest.ask(0, &put).is_ok());
    let change = AttributeChange { mode: Some(0o4755), ..AttributeChange::default() };
    nest.model.apply(&Op::SetAttributes { id: nest.egg, change, time: NOW }).expect("a file");
    assert!(nest.ask(1, &put).is_ok(), "the owner may set the bit of the owner");
}

#[test]
fn readers_and_owners_move_access_times_to_the_present() {
    let nest = Nest::new();
    let mark = |time| Op::MarkAccess { id: nest.egg, time };
    for (uid, time) in [(0, 2000), (1, 1), (1, 2000), (2, 1), (2, 2000)] {
        let given = nest.ask(uid, &mark(Time::new(time, 0))).expect("all may read");
        assert_eq!(given, mark(NOW), "user {uid}");
    }
    let early = mark(Time::new(1, 0));
    assert_eq!(nest.ask(0, &early).expect("root restores times"), early);
    let set = |change| {
        let op = Op::SetAttributes { id: nest.egg, change, time: NOW };
        nest.model.apply(&op).expect("a file");
    };
    set(AttributeChange { mode: Some(0o220), ..AttributeChange::default() });
    assert!(nest.is_refused(2, &mark(NOW)), "this user cannot have read the file");
    assert!(nest.ask(1, &mark(NOW)).is_ok(), "the owner may have opened the file before");
    set(AttributeChange { flags: Some(InodeFlags::IMMUTABLE), ..AttributeChange::default() });
    assert!(nest.ask(1, &mark(NOW)).is_ok(), "a read of an immutable file counts on Linux, too");
}

#[test]
fn flags_bind_all_clients() {
    let nest = Nest::new();
    let (root, id, dir, time, set_ids) = (nest.model.root(), nest.egg, nest.shared, NOW, SetIds::Keep);
    let set = |id, flags| {
        let change = AttributeChange { flags: Some(flags), ..AttributeChange::default() };
        Op::SetAttributes { id, change, time }
    };
    let (none, immutable, grows) = (InodeFlags::empty(), InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY);
    assert!(nest.is_refused(1, &set(id, immutable)), "the owner lacks the capability");
    assert!(nest.is_refused(2, &set(id, none)) && nest.ask(1, &set(id, none)).is_ok());
    nest.model.apply(&nest.ask(0, &set(id, grows)).expect("root")).expect("a file");
    let new = nest.model.reserve(Kind::File).expect("room");
    let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
    let change = |change| Op::SetAttributes { id, change, time };
    let write = Op::Write { id, offset: 0, data: b"x", set_ids, time };
    let append = Op::Append { id, data: b"x", set_ids, time };
    let fallocate = |mode| Op::Fallocate { id, mode, offset: 0, length: 4096, set_ids, time };
    let times = AttributeChange { modified: Some(NOW), ..AttributeChange::default() };
    let refused = [
        write,
        Op::SetSize { id, size: 0, set_ids, time },
        fallocate(FallocateMode::PunchHole),
        change(AttributeChange { size: Some(0), ..AttributeChange::default() }),
        change(AttributeChange { mode: Some(0o600), ..AttributeChange::default() }),
        change(AttributeChange { uid: Some(2), ..AttributeChange::default() }),
        change(times),
        Op::SetXattr { id, name: b"user.a", value: b"x", mode: XattrMode::Set, time },
        Op::RemoveXattr { id, name: b"user.a", time },
        Op::SetAcl { id, kind: AclKind::Access, acl: &[], drops_set_gid: false, time },
        Op::Link { dir, name: b"a", id, time },
        Op::Unlink { dir, name: b"egg", time },
        Op::Put { dir, name: b"egg", id: new, owner, data: b"x", time },
        Op::Erase { dir, name: b"egg", time },
    ];
    let present = change(AttributeChange { accessed: Some(NOW), ..times });
    for op in [append, fallocate(FallocateMode::Allocate), present] {
        assert!(nest.ask(0, &op).is_ok(), "{op:?}");
    }
    assert!(refused.iter().all(|op| nest.is_refused(0, op)));
    nest.model.apply(&set(id, immutable)).expect("a file");
    for op in refused.iter().chain(&[append, fallocate(FallocateMode::Allocate), present]) {
        assert!(nest.is_refused(0, op), "{op:?}");
    }

    let create = Op::Create { dir, name: b"a", id: new, owner, content: Content::Empty, time };
    let put = Op::Put { dir, name: b"a", id: new, owner, data: b"x", time };
    let removals = [
        Op::RemoveDirectory { dir: root, name: b"shared", time },
        Op::Rename {
            from_dir: dir,
            from_name: b"egg",
            to_dir: root,
            to_name: b"egg",
            mode: RenameMode::Replace,
            whiteout: None,
            time,
        },
    ];
    nest.model.apply(&set(id, none)).expect("a file");
    nest.model.apply(&set(dir, grows)).expect("a directory");
    assert!(nest.ask(0, &create).is_ok() && nest.ask(0, &put).is_ok());
    assert!(removals.iter().all(|op| nest.is_refused(0, op)));
    nest.model.apply(&set(dir, immutable)).expect("a directory");
    for op in [create, put].iter().chain(&removals) {
        assert!(nest.is_refused(0, op), "{op:?}");
    }
}

#[test]
fn immutable_directory_keeps_its_keys() {
    let nest = Nest::new();
    let (dir, time) = (nest.shared, NOW);
    let change = AttributeChange { flags: Some(InodeFlags::IMMUTABLE), ..AttributeChange::default() };
    nest.model.apply(&Op::SetAttributes { id: dir, change, time }).expect("a directory");
    let new = nest.model.reserve(Kind::File).expect("room");
    let owner = Owner { mode: 0o644, uid: 1, gid: 1 };
    let put = |name| Op::Put { dir, name, id: new, owner, data: b"x", time };
    let erase = |name| Op::Erase { dir, name, time };
    let expect = Op::Expect { dir, name: b"egg", condition: Condition::Present };
    let unchanged = [put(b"egg"), erase(b"none"), expect];
    for op in unchanged.iter().chain(&[Op::Batch { dir, ops: &unchanged, time }]) {
        assert!(nest.ask(1, op).is_ok() && nest.ask(0, op).is_ok(), "{op:?}");
    }
    for op in [put(b"a"), erase(b"egg")] {
        let batch = Op::Batch { dir, ops: &[op], time };
        for op in [op, batch] {
            assert!(nest.is_refused(1, &op) && nest.is_refused(0, &op), "{op:?}");
        }
    }
}

#[test]
fn rights_are_those_of_the_acl() {
    let nest = Nest::new();
    let id = nest.egg;
    let entry = |tag: u8, rights: u8, id: u32| [&[tag, 0, rights, 0][..], &id.to_le_bytes()].concat();
    let named = [entry(2, 6, 2), entry(2, 4, 3)].concat();
    let others = [entry(4, 5, u32::MAX), entry(0x10, 6, u32::MAX), entry(0x20, 6, u32::MAX)].concat();
    let acl = [vec![2, 0, 0, 0], entry(1, 7, u32::MAX), named, others].concat();
    let set = Op::SetAcl { id, kind: AclKind::Access, acl: &acl, drops_set_gid: false, time: NOW };
    assert!(nest.is_refused(2, &set));
    // The owner is in the group of the file, so the file keeps its set-group-id bit.
    assert_eq!(nest.ask(1, &set).expect("the owner"), set);
    nest.model.apply(&set).expect("an ACL");
    let write = Op::Write { id, offset: 0, data: b"x", set_ids: SetIds::Keep, time: NOW };
    assert!(nest.ask(2, &write).is_ok() && nest.ask(4, &write).is_ok());
    assert!(nest.is_refused(3, &write), "the entry of the user decides, and not that of the others");

    let default =
        Op::SetAcl { id: nest.shared, kind: AclKind::Default, acl: &acl, drops_set_gid: false, time: NOW };
    nest.model.apply(&default).expect("an ACL");
    let new = nest.model.reserve(Kind::File).expect("room");
    let owner = Owner { mode: 0o666 | Owner::INHERITS, uid: 2, gid: 2 };
    let create =
        Op::Create { dir: nest.shared, name: b"b", id: new, owner, content: Content::Empty, time: NOW };
    assert_eq!(nest.ask(2, &create).expect("the directory is shared"), create);
    nest.model.apply(&create).expect("a new name");
    assert_eq!(nest.model.owner(new).expect("made").mode, 0o666);
    assert!(nest.model.xattr(new, AclKind::Access.name(), &mut []).expect("made").is_some());
    let stale =
        Op::Create { dir: nest.model.root(), name: b"c", id: new, owner, content: Content::Empty, time: NOW };
    assert!(matches!(nest.model.apply(&stale), Err(Error::Stale)));
}

#[test]
fn changes_have_the_present_time_and_writes_drop_set_ids() {
    let nest = Nest::new();
    let late = Time::new(2000, 0);
    let write = Op::Write { id: nest.egg, offset: 0, data: b"x", set_ids: SetIds::Keep, time: late };
    let Op::Write { set_ids, time, .. } = nest.ask(1, &write).expect("its owner writes") else {
        panic!("another Op");
    };
    assert_eq!((set_ids, time), (SetIds::DropAsMember, NOW));
    // Root writes for another user, and names the set-id bits that this write clears.
    let named = Op::Write { id: nest.egg, offset: 0, data: b"x", set_ids: SetIds::DropAsStranger, time: NOW };
    assert_eq!(nest.ask(0, &named).expect("root writes"), named);
    let unlink = |time| Op::Unlink { dir: nest.shared, name: b"egg", time };
    let early = unlink(Time::new(1, 0));
    assert_eq!(nest.ask(1, &early).expect("all may remove"), unlink(NOW));
    assert_eq!(nest.ask(0, &early).expect("root restores times"), early);
    let touch = |modified, time| {
        let change = AttributeChange { modified: Some(modified), ..AttributeChange::default() };
        Op::SetAttributes { id: nest.egg, change, time }
    };
    for uid in [0, 1] {
        assert_eq!(nest.ask(uid, &touch(late, late)).expect("the owner or root"), touch(NOW, NOW));
        let named = Time::new(3000, 0);
        assert_eq!(nest.ask(uid, &touch(named, late)).expect("the owner or root"), touch(named, NOW));
    }
    let set = |change| Op::SetAttributes { id: nest.egg, change, time: NOW };
    assert!(nest.is_refused(2, &set(AttributeChange::default())));
    let drop = set(AttributeChange { drops_capability: true, ..AttributeChange::default() });
    assert!(nest.is_refused(2, &drop));
    let writable = set(AttributeChange { mode: Some(0o666), ..AttributeChange::default() });
    nest.model.apply(&writable).expect("a file");
    assert_eq!(nest.ask(2, &drop).expect("all may write"), drop);
}
