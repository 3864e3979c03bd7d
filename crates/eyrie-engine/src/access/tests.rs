//! Permissions, case by case.

use super::*;
use crate::Errno;

fn object(kind: Kind, mode: u16, uid: u32, gid: u32) -> Protection {
    Protection::without_acls(kind, Owner { mode, uid, gid })
}

fn file(mode: u16, uid: u32, gid: u32) -> Protection {
    object(Kind::File, mode, uid, gid)
}

fn dir(mode: u16, uid: u32, gid: u32) -> Protection {
    object(Kind::Directory, mode, uid, gid)
}

/// Returns user 1 of groups 10 and 11.
fn user() -> Credentials {
    Credentials::new(1, 10, &[11])
}

#[test]
fn groups_in_any_order_are_found() {
    let who = Credentials::new(1, 50, &[9, 70, 3, 9, u32::MAX, 0]);
    assert_eq!(who.groups(), [0, 3, 9, 9, 70, u32::MAX], "in order, for the search");
    for gid in [50, 9, 70, 3, u32::MAX, 0] {
        assert!(who.in_group(gid), "{gid}");
    }
    assert!(![1, 4, 69, 71].iter().any(|&gid| who.in_group(gid)));
}

#[test]
fn first_matching_permission_class_decides() {
    let (r, w, x) = (Rights::READ, Rights::WRITE, Rights::EXECUTE);
    for (object, rights, granted) in [
        (file(0o400, 1, 10), r, true),
        (file(0o400, 1, 10), w, false),
        (file(0o077, 1, 10), r, false),
        (file(0o040, 2, 10), r, true),
        (file(0o040, 2, 11), r, true),
        (file(0o707, 2, 11), r, false),
        (file(0o004, 2, 12), r, true),
        (file(0o004, 2, 12), r | w, false),
        (file(0o006, 2, 12), r | w, true),
        (dir(0o001, 2, 12), x, true),
        (dir(0o770, 2, 12), x, false),
        (file(0, 2, 12), Rights::empty(), true),
    ] {
        assert_eq!(check(&user(), &object, rights).is_ok(), granted, "{object:?} {rights:?}");
    }
}

#[test]
fn root_executes_only_executable_files() {
    let root = Credentials::root();
    for (object, rights, granted) in [
        (file(0, 1, 1), Rights::READ | Rights::WRITE, true),
        (file(0o600, 0, 0), Rights::EXECUTE, false),
        (file(0o010, 1, 1), Rights::EXECUTE, true),
        (dir(0, 1, 1), Rights::all(), true),
    ] {
        assert_eq!(check(&root, &object, rights).is_ok(), granted, "{object:?} {rights:?}");
    }
}

#[test]
fn sticky_directory_protects_entries_of_others() {
    for (who, dir, victim, errno) in [
        (user(), dir(0o1777, 2, 2), file(0, 2, 2), Some(Errno::PERM)),
        (user(), dir(0o1777, 2, 2), file(0, 1, 2), None),
        (user(), dir(0o1777, 1, 2), file(0, 2, 2), None),
        (user(), dir(0o777, 2, 2), file(0, 2, 2), None),
        (user(), dir(0o1775, 2, 2), file(0, 2, 2), Some(Errno::ACCESS)),
        (Credentials::root(), dir(0o1000, 2, 2), file(0, 2, 2), None),
    ] {
        let result = check_remove(&who, &dir, &victim);
        assert_eq!(result.err().map(|error| error.errno()), errno, "{dir:?} {victim:?}");
    }
}

#[test]
fn set_id_bits_survive_as_on_linux() {
    let root = Credentials::root();
    for (who, before, written, owned) in [
        (&user(), file(0o6777, 1, 10), 0o777, 0o777),
        (&user(), file(0o2767, 1, 10), 0o2767, 0o2767),
        (&user(), file(0o2767, 1, 12), 0o767, 0o767),
        (&user(), file(0o4755, 1, 10), 0o755, 0o755),
        (&root, file(0o6777, 1, 10), 0o6777, 0o777),
        (&root, file(0o2767, 1, 12), 0o2767, 0o2767),
    ] {
        let set_ids = set_ids_after_write(who, &before);
        assert_eq!(mode_after(before.mode, set_ids), written, "{before:?} written");
        let set_ids = chown(who, &before, None, None).expect("allowed");
        assert_eq!(mode_after(before.mode, set_ids), owned, "{before:?} chowned");
    }
}

#[test]
fn foreign_group_takes_both_set_id_bits() {
    let who = user().with_capabilities(Capabilities::CHOWN);
    for (mode, gid, owned) in [
        (0o6745, Some(12), 0o745),
        (0o6745, Some(11), 0o2745),
        (0o6745, None, 0o2745),
        (0o2745, Some(12), 0o2745),
    ] {
        let before = file(mode, 1, 10);
        let set_ids = chown(&who, &before, None, gid).expect("allowed");
        assert_eq!(mode_after(mode, set_ids), owned, "{mode:o} {gid:?}");
    }
}

#[test]
fn directories_keep_their_set_id_bits() {
    assert_eq!(chown(&user(), &dir(0o6777, 1, 10), None, None).ok(), Some(SetIds::Keep));
}

#[test]
fn owner_gives_file_only_to_own_groups() {
    let own = file(0o644, 1, 10);
    for (object, uid, gid, allowed) in [
        (own, None, Some(11), true),
        (own, None, Some(12), false),
        (own, Some(1), Some(10), true),
        (own, Some(2), None, false),
        (file(0o644, 2, 10), None, Some(10), false),
        (file(0o644, 2, 10), None, None, true),
        (file(0o4644, 2, 10), None, None, false),
    ] {
        assert_eq!(chown(&user(), &object, uid, gid).is_ok(), allowed, "{object:?} {uid:?} {gid:?}");
        assert!(chown(&Credentials::root(), &object, uid, gid).is_ok());
    }
}

#[test]
fn chmod_by_outsider_drops_set_gid() {
    assert_eq!(chmod(&user(), &file(0, 1, 11), 0o2755).ok(), Some(0o2755));
    assert_eq!(chmod(&user(), &file(0, 1, 12), 0o2755).ok(), Some(0o755));
    assert_eq!(chmod(&Credentials::root(), &file(0, 1, 12), 0o2755).ok(), Some(0o2755));
    assert!(chmod(&user(), &file(0o777, 2, 10), 0o755).is_err());
}

#[test]
fn owners_set_times_writers_touch_them() {
    for (object, now, errno) in [
        (file(0, 1, 1), false, None),
        (file(0o666, 2, 2), true, None),
        (file(0o666, 2, 2), false, Some(Errno::PERM)),
        (file(0o644, 2, 2), true, Some(Errno::ACCESS)),
    ] {
        let result = check_set_times(&user(), &object, now);
        assert_eq!(result.err().map(|error| error.errno()), errno, "{object:?} {now}");
    }
}

#[test]
fn sticky_directory_refuses_create_open_of_foreign_object() {
    let link = |uid| object(Kind::Symlink, 0o777, uid, 0);
    for (dir, object, allowed) in [
        (dir(0o1777, 2, 2), link(3), false),
        (dir(0o1777, 2, 2), link(2), true),
        (dir(0o1777, 2, 2), link(1), true),
        (dir(0o1777, 2, 2), file(0, 3, 3), true),
        (dir(0o1775, 2, 2), link(3), true),
        (dir(0o777, 2, 2), link(3), true),
    ] {
        assert_eq!(
            check_open_for_create(AccessRules::NONE, &user(), &dir, &object).is_ok(),
            allowed,
            "{dir:?} {object:?}"
        );
    }
}

#[test]
fn xattr_namespaces_have_their_rules() {
    let (perm, access, none) = (Some(Errno::PERM), Some(Errno::ACCESS), Some(Errno::NODATA));
    let (unknown, invalid) = (Some(Errno::OPNOTSUPP), Some(Errno::INVAL));
    let (own, open, closed) = (file(0o600, 1, 10), file(0o666, 2, 12), file(0o600, 2, 12));
    let (sticky, fifo) = (dir(0o1777, 2, 12), object(Kind::Fifo, 0o666, 1, 10));
    let root = Credentials::root();
    // The user, the object and the name; the results of getting and setting.
    type Case<'a> = (&'a Credentials, Protection, &'a [u8], Option<Errno>, Option<Errno>);
    let cases: [Case<'_>; 25] = [
        (&user(), own, b"user.a", None, None),
        (&user(), open, b"user.a", None, None),
        (&user(), closed, b"user.a", access, access),
        (&user(), file(0o004, 2, 12), b"user.a", None, access),
        (&root, closed, b"user.a", None, None),
        (&user(), own, b"user.", invalid, invalid),
        (&user(), closed, b"user.", access, access),
        (&user(), fifo, b"user.a", none, perm),
        (&root, fifo, b"user.a", none, perm),
        (&user(), sticky, b"user.a", None, perm),
        (&user(), dir(0o1777, 1, 12), b"user.a", None, None),
        (&root, sticky, b"user.a", None, None),
        (&user(), file(0o1666, 2, 12), b"user.a", None, None),
        (&user(), own, b"trusted.a", none, perm),
        (&root, fifo, b"trusted.a", None, None),
        (&root, own, b"trusted.", invalid, invalid),
        (&user(), closed, b"security.a", None, perm),
        (&root, fifo, b"security.a", None, None),
        (&root, own, b"security.capability", None, None),
        (&user(), own, b"security.capability", None, perm),
        (&user(), own, b"system.other", unknown, unknown),
        (&root, own, b"system.posix_acl", unknown, unknown),
        (&user(), own, b"other.a", unknown, unknown),
        (&user(), closed, b"other.a", access, access),
        (&root, own, b"user", unknown, unknown),
    ];
    for (who, object, name, get, set) in cases {
        let errno = |result: Result<()>| result.err().map(|error| error.errno());
        let name_shown = name.escape_ascii().to_string();
        assert_eq!(errno(check_get_xattr(who, &object, name)), get, "getting {name_shown} of {object:?}");
        assert_eq!(errno(check_set_xattr(who, &object, name)), set, "setting {name_shown} of {object:?}");
    }
    assert!(lists_xattr(&root, b"trusted.a") && !lists_xattr(&user(), b"trusted.a"));
    assert!(lists_xattr(&user(), b"security.a") && lists_xattr(&user(), b"user.a"));
}

#[test]
fn acls_are_set_by_owners_on_objects_that_have_them() {
    const NO_ID: [u8; 4] = [0xff; 4];
    let entry = |tag: u8, rights: u8| [[tag, 0, rights, 0], NO_ID].concat();
    let good = [vec![2, 0, 0, 0], entry(1, 6), entry(4, 4), entry(0x20, 0)].concat();
    let disordered = [vec![2, 0, 0, 0], entry(4, 4), entry(1, 6), entry(0x20, 0)].concat();
    let (own, other, folder) = (file(0o600, 1, 10), file(0o666, 2, 12), dir(0o755, 1, 10));
    let link = object(Kind::Symlink, 0o777, 1, 10);
    let (access, perm, unknown) = (Some(Errno::ACCESS), Some(Errno::PERM), Some(Errno::OPNOTSUPP));
    let invalid = Some(Errno::INVAL);
    for (object, kind, bytes, want) in [
        (own, AclKind::Access, &good[..], None),
        (own, AclKind::Access, b"", None),
        (own, AclKind::Default, &good, access),
        (other, AclKind::Default, &good, access),
        (own, AclKind::Default, b"", None),
        (folder, AclKind::Default, &good, None),
        (other, AclKind::Access, &good, perm),
        (other, AclKind::Access, b"", perm),
        (own, AclKind::Access, &disordered, invalid),
        // The form of the bytes is checked first, then the owner, and then the order of the entries.
        (other, AclKind::Access, &disordered, perm),
        (other, AclKind::Access, &good[..7], invalid),
        (link, AclKind::Access, &good, unknown),
        (own, AclKind::Access, &[1, 0, 0, 0], unknown),
    ] {
        let result = check_set_acl(&user(), &object, kind, bytes);
        assert_eq!(result.err().map(|error| error.errno()), want, "{object:?} {kind:?} {bytes:?}");
    }
    assert!(check_set_acl(&Credentials::root(), &other, AclKind::Access, &good).is_ok());
    assert!(check_get_xattr(&user(), &file(0, 2, 12), AclKind::Access.name()).is_ok());
    assert!(check_get_xattr(&user(), &link, AclKind::Access.name()).is_err());
    let set_gid = file(0o2755, 1, 12);
    assert!(acl_drops_set_gid(&user(), &set_gid) && !acl_drops_set_gid(&Credentials::root(), &set_gid));
    assert!(!acl_drops_set_gid(&user(), &file(0o2755, 1, 10)));
}

#[test]
fn default_acl_takes_the_place_of_the_umask() {
    let who = user().with_umask(0o077);
    let parent = Protection { has_default_acl: true, ..dir(0o777, 2, 12) };
    assert_eq!(owner_of_new(&who, &parent, Kind::File, 0o666).mode, 0o666 | Owner::INHERITS);
    assert_eq!(owner_of_new(&who, &parent, Kind::Directory, 0o777).mode, 0o777 | Owner::INHERITS);
    assert_eq!(owner_of_new(&who, &parent, Kind::Symlink, 0).mode, 0o777);
    assert_eq!(owner_of_new(&who, &dir(0o777, 2, 12), Kind::File, 0o666).mode, 0o600);
}

#[test]
fn protected_hardlinks_allow_own_or_writable_files() {
    let dir = dir(0o777, 2, 12);
    for (object, allowed) in [
        (file(0, 1, 1), true),
        (file(0o666, 2, 2), true),
        (file(0o644, 2, 2), false),
        (file(0o4666, 2, 2), false),
        (file(0o2676, 2, 2), false),
        (object(Kind::Symlink, 0o777, 2, 2), false),
    ] {
        let linked = |rules| check_new_name(rules, &user(), &object, &dir).is_ok();
        assert_eq!(linked(AccessRules::default()), allowed, "{object:?}");
        assert!(linked(AccessRules::NONE), "{object:?}");
        assert!(check_new_name(AccessRules::default(), &Credentials::root(), &object, &dir).is_ok());
    }
}

#[test]
fn new_object_inherits_group_of_set_gid_directory() {
    let masked = user().with_umask(0o022);
    let (plain, set) = (dir(0o777, 2, 12), dir(0o2777, 2, 12));
    for (who, parent, kind, mode, want) in [
        (&user(), plain, Kind::File, 0o6777, (0o6777, 10)),
        (&user(), set, Kind::File, 0o2777, (0o777, 12)),
        (&user(), set, Kind::File, 0o2767, (0o2767, 12)),
        (&user(), set, Kind::Directory, 0o755, (0o2755, 12)),
        (&user(), plain, Kind::Directory, 0o7777, (0o1777, 10)),
        (&masked, plain, Kind::File, 0o666, (0o644, 10)),
        (&masked, set, Kind::Symlink, 0, (0o777, 12)),
        (&Credentials::root(), set, Kind::File, 0o2777, (0o2777, 12)),
    ] {
        let owner = owner_of_new(who, &parent, kind, mode);
        assert_eq!((owner.mode, owner.gid), want, "{parent:?} {kind:?} {mode:o}");
        assert_eq!(owner.uid, who.uid());
    }
}

#[test]
fn clones_share_the_id_that_caches_use() {
    let who = user();
    assert_eq!(who.id(), who.clone().id());
    assert_ne!(who.id(), user().id());
}

#[test]
fn protected_symlink_follows_owner_of_link_or_directory() {
    let on = AccessRules { protected_symlinks: true, ..AccessRules::NONE };
    let link = |uid| object(Kind::Symlink, 0o777, uid, 0);
    for (who, dir, link, allowed) in [
        (user(), dir(0o1777, 2, 2), link(3), false),
        (user(), dir(0o1777, 2, 2), link(2), true),
        (user(), dir(0o1777, 2, 2), link(1), true),
        (user(), dir(0o1702, 2, 2), link(3), false),
        (user(), dir(0o1775, 2, 2), link(3), true),
        (user(), dir(0o777, 2, 2), link(3), true),
        (Credentials::root(), dir(0o1777, 2, 2), link(3), false),
        (Credentials::root(), dir(0o1777, 2, 2), link(0), true),
    ] {
        assert_eq!(check_follow(on, &who, &dir, &link).is_ok(), allowed, "{dir:?} {link:?}");
        assert!(check_follow(AccessRules::default(), &who, &dir, &link).is_ok());
    }
}

#[test]
fn protected_pipes_and_files_refuse_create_open() {
    let rules = |kind, sticky| match kind {
        Kind::File => AccessRules { protected_regular: sticky, ..AccessRules::NONE },
        _ => AccessRules { protected_fifos: sticky, ..AccessRules::NONE },
    };
    // The directory, the owner of the object, and the expected success of the open with the `sysctl` values
    // 0, 1 and 2.
    for (dir, uid, allowed) in [
        (dir(0o1777, 2, 2), 3, [true, false, false]),
        (dir(0o1777, 2, 2), 2, [true, true, true]),
        (dir(0o1777, 2, 2), 1, [true, true, true]),
        (dir(0o1702, 2, 2), 3, [true, false, false]),
        (dir(0o1770, 2, 2), 3, [true, true, false]),
        (dir(0o1775, 2, 2), 3, [true, true, false]),
        (dir(0o1755, 2, 2), 3, [true, true, true]),
        (dir(0o777, 2, 2), 3, [true, true, true]),
    ] {
        let values = [Sticky::None, Sticky::WritableByAll, Sticky::WritableByGroup].into_iter().zip(allowed);
        for (sticky, allowed) in values {
            for (kind, other) in [(Kind::File, Kind::Fifo), (Kind::Fifo, Kind::File)] {
                let opened = |who: &Credentials, of| {
                    check_open_for_create(rules(of, sticky), who, &dir, &object(kind, 0o666, uid, 0)).is_ok()
                };
                assert_eq!(opened(&user(), kind), allowed, "{kind:?} of {uid} in {dir:?}, {sticky:?}");
                assert!(uid == 1 || opened(&Credentials::root(), kind) == allowed, "root obeys, too");
                assert!(opened(&user(), other), "the rule of {other:?} is not that of {kind:?}");
            }
        }
    }
}

#[test]
fn credentials_of_process_have_its_umask() {
    let status = std::fs::read_to_string("/proc/self/status").expect("this host has procfs");
    let line = status.lines().find(|line| line.starts_with("Umask:")).expect("a line of the kernel");
    let umask = Credentials::of_process().umask();
    assert_eq!(line.split_whitespace().nth(1), Some(format!("{umask:04o}").as_str()));
}
