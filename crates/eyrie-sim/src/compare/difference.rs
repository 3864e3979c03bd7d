//! Differences of two trees, as text.

use std::collections::BTreeSet;

use super::tree::{Tree, TreeNode, TreePath, Xattrs, show};

/// Maximum number of differences in a report, so that the report of a failure stays readable. If there are
/// more differences, an additional line has the number of the others.
const MAX_LINES: usize = 12;

/// Describes the differences of two trees in a few lines. If both trees have an object at a path, a line has
/// the value in the first tree, and then the value in the second. Returns `None` if the trees are equal.
pub fn difference(a: &Tree, b: &Tree) -> Option<String> {
    if a == b {
        return None;
    }
    let paths: BTreeSet<&TreePath> = a.nodes.keys().chain(b.nodes.keys()).collect();
    let mut lines = Vec::new();
    for path in paths {
        let display_path = show(path);
        match (a.nodes.get(path), b.nodes.get(path)) {
            (Some(left), Some(right)) => {
                lines.extend(fields(left, right).into_iter().map(|line| format!("{display_path}: {line}")));
            }
            (Some(left), None) => lines.push(format!("{display_path}: {:?} in the first only", left.kind)),
            (None, Some(right)) => lines.push(format!("{display_path}: {:?} in the second only", right.kind)),
            (None, None) => {}
        }
    }
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("and {more} more"));
    }
    Some(lines.join("\n"))
}

/// Describes each extended attribute that differs, with one line for each: the sizes of both values, or the
/// first byte that differs.
pub fn xattr_differences(a: &Xattrs, b: &Xattrs) -> Vec<String> {
    let names: BTreeSet<_> = a.keys().chain(b.keys()).filter(|name| a.get(*name) != b.get(*name)).collect();
    let line = |name: &Vec<u8>| {
        let shown = name.escape_ascii();
        let size = |xattrs: &Xattrs| {
            xattrs.get(name).map_or("absent".to_owned(), |value| format!("of {} B", value.len()))
        };
        let values = a.get(name).zip(b.get(name)).filter(|(left, right)| left.len() == right.len());
        let different = values.and_then(|(left, right)| {
            let at = left.iter().zip(right).position(|(left, right)| left != right)?;
            Some((at, left[at], right[at]))
        });
        match different {
            Some((at, left, right)) => {
                format!("byte {at} of extended attribute {shown} {left:#04x}, and {right:#04x}")
            }
            None => format!("extended attribute {shown} {}, and {}", size(a), size(b)),
        }
    };
    names.into_iter().map(line).collect()
}

fn fields(a: &TreeNode, b: &TreeNode) -> Vec<String> {
    let mut lines = Vec::new();
    macro_rules! compare {
        ($($field:ident)*) => {
            $(if a.$field != b.$field {
                lines.push(format!("{} {:?}, and {:?}", stringify!($field), a.$field, b.$field));
            })*
        };
    }
    compare!(kind links size uid gid accessed modified changed created device flags project);
    if a.mode != b.mode {
        lines.push(format!("mode {:#o}, and {:#o}", a.mode, b.mode));
    }
    lines.extend(xattr_differences(&a.xattrs, &b.xattrs));
    if a.same_as != b.same_as {
        let same = |node: &TreeNode| node.same_as.as_ref().map_or("no other path".into(), show);
        lines.push(format!("same object as {}, and {}", same(a), same(b)));
    }
    if a.pages != b.pages {
        lines.push(first_byte(a, b));
    }
    lines
}

/// Describes the first byte at which the contents of two files differ.
fn first_byte(a: &TreeNode, b: &TreeNode) -> String {
    let offsets: BTreeSet<u64> = a.pages.keys().chain(b.pages.keys()).copied().collect();
    for offset in offsets {
        let page = |node: &TreeNode| node.pages.get(&offset).cloned().unwrap_or_default();
        let (left, right) = (page(a), page(b));
        let byte = |page: &[u8], index: usize| page.get(index).copied().unwrap_or(0);
        for index in 0..left.len().max(right.len()) {
            let (left, right) = (byte(&left, index), byte(&right, index));
            if left != right {
                return format!("byte {} is {left:#04x}, and {right:#04x}", offset + index as u64);
            }
        }
    }
    "contents of different length".into()
}
