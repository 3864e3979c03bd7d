//! ACLs for random calls and Ops: the bytes of the extended attributes of Linux.

// The tags of entries, and the id of an entry that names no user and no group, as in Linux.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// Number of different ACLs that [`acl`] makes for one value of `rights`.
pub const ACL_COUNT: usize = 20;
/// Number of ACLs that Linux accepts. They have the lowest indices.
pub const GOOD_ACL_COUNT: usize = 11;

/// Returns the bytes of an ACL. `index` selects its entries. Each entry has the next three bits of `rights`
/// as its rights, from the lowest bits on. The users and groups are those of the module
/// [`posix`](crate::posix), except in the ACL with 60 named users.
pub fn acl(index: usize, rights: u32) -> Vec<u8> {
    let many: Vec<(u16, u32)> = (0..60).map(|user| (USER, 5000 + user)).collect();
    let (one, two, group) = ((USER, 1000), (USER, 1001), (NAMED_GROUP, 2000));
    let (owner, members, mask, others) = ((OWNER, NO_ID), (GROUP, NO_ID), (MASK, NO_ID), (OTHER, NO_ID));
    let entries = match index % ACL_COUNT {
        0 => return Vec::new(),
        1 => return bytes(2, &[], 0),
        2 => vec![owner, members, others],
        3 => vec![owner, members, mask, others],
        4 => vec![owner, one, members, mask, others],
        5 => vec![owner, members, group, mask, others],
        6 => vec![owner, one, two, members, group, mask, others],
        7 => vec![owner, two, members, (NAMED_GROUP, 1000), (NAMED_GROUP, 1001), group, mask, others],
        8 => vec![owner, (USER, 0), one, one, members, group, group, mask, others],
        9 => [vec![owner], many, vec![members, mask, others]].concat(),
        10 => vec![(OWNER, 7), one, (GROUP, 8), (MASK, 9), (OTHER, 10)],
        11 => return bytes(1, &[owner, members, others], rights),
        12 => vec![owner, one, members, others],
        13 => vec![owner, members, one, mask, others],
        14 => vec![owner, members, others, mask],
        15 => vec![owner, owner, members, others],
        16 => vec![members, others],
        17 => vec![owner, (USER, NO_ID), members, mask, others],
        18 => vec![owner, members, (0x40, NO_ID), others],
        _ => return bytes(2, &[owner, members, others], rights)[..11 + rights as usize % 3].to_vec(),
    };
    bytes(2, &entries, rights)
}

fn bytes(version: u32, entries: &[(u16, u32)], rights: u32) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    for (index, (tag, id)) in entries.iter().enumerate() {
        let rights = (rights.rotate_right(3 * index as u32) & 7) as u16;
        bytes.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain(id.to_le_bytes()));
    }
    bytes
}
