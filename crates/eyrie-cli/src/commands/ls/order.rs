//! The order of a listing: by name, by time or by size.

use std::cmp::{Ordering, Reverse};

use super::LsArgs;
use super::listed::Listed;

/// Sorts `entries`. `listed` returns the file of an entry. Equal times and sizes are sorted by name.
pub(super) fn sort<T>(arguments: &LsArgs, entries: &mut [T], listed: impl Fn(&T) -> &Listed) {
    entries.sort_by(|left, right| {
        let (left, right) = (listed(left), listed(right));
        let order = key(arguments, left, right).then_with(|| left.name.cmp(&right.name));
        if arguments.reverse { order.reverse() } else { order }
    });
}

fn key(arguments: &LsArgs, left: &Listed, right: &Listed) -> Ordering {
    let time = |listed: &Listed| Reverse(listed.stat.map(|stat| stat.modified));
    let size = |listed: &Listed| Reverse(listed.stat.map(|stat| stat.size));
    if arguments.by_time {
        time(left).cmp(&time(right))
    } else if arguments.by_size {
        size(left).cmp(&size(right))
    } else {
        Ordering::Equal
    }
}
