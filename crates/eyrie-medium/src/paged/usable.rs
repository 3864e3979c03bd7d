//! The memory that this process may use: the memory of the machine, or less if the control groups of the
//! process have a lower limit.
//!
//! The limit of a group holds for all groups below it. So the lowest limit on the path to the process's own
//! group applies. Both versions of control groups may be mounted at the same time.

use std::fs;
use std::path::Path;

/// Returns the memory that this process may use, in bytes.
pub(super) fn usable_memory() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = system.totalram as u64 * u64::from(system.mem_unit.max(1));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least_limit(Path::new("/sys/fs/cgroup"), &groups).map_or(machine, |limit| limit.min(machine))
}

/// Returns the lowest memory limit in the hierarchies mounted below `root`, for a process in `groups`. The
/// caller passes the lines of `/proc/self/cgroup` as `groups`.
fn least_limit(root: &Path, groups: &str) -> Option<u64> {
    groups.lines().filter_map(Membership::parse).filter_map(|membership| membership.least_limit(root)).min()
}

/// The group of a process in a hierarchy that may limit memory.
struct Membership<'a> {
    /// Possible mount points of the hierarchy. A machine that has both versions mounts version 2 at
    /// `unified`.
    mounts: &'static [&'static str],
    limit_file: &'static str,
    group: &'a str,
}

impl Membership<'_> {
    /// Parses a line: the number of the hierarchy, its controllers (none in version 2), and the path of the
    /// group.
    fn parse(line: &str) -> Option<Membership<'_>> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        if controllers.is_empty() {
            Some(Membership { mounts: &["", "unified"], limit_file: "memory.max", group })
        } else if controllers.split(',').any(|controller| controller == "memory") {
            Some(Membership { mounts: &["memory"], limit_file: "memory.limit_in_bytes", group })
        } else {
            None
        }
    }

    /// Returns the lowest limit from the group up to the mount. A group without a limit has no limit file, or
    /// the file says `max` (version 2) or a very large number (version 1). In a container the mount may begin
    /// at the container's group although the path of the group starts at the top of the hierarchy. The search
    /// then finds the limit at the mount.
    fn least_limit(&self, root: &Path) -> Option<u64> {
        let above = || Path::new(self.group).ancestors();
        let dirs =
            self.mounts.iter().flat_map(|mount| above().map(move |group| root.join(mount).join(group)));
        dirs.filter_map(|dir| fs::read_to_string(dir.join(self.limit_file)).ok()?.trim().parse().ok()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of the limit file of a version 1 group without a limit.
    const UNLIMITED: &str = "9223372036854771712\n";

    /// Makes a directory of mounts with these files.
    fn mounts(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn least_limit_above_a_process_applies() {
        let root = mounts(&[
            ("memory.max", "70\n"),
            ("a/memory.max", "30\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/c/memory.max", "50\n"),
            ("a/b/c/below/memory.max", "10\n"),
            ("beside/memory.max", "20\n"),
        ]);
        let limit = |groups| least_limit(root.path(), groups);
        assert_eq!(limit("0::/a/b/c\n"), Some(30));
        assert_eq!(limit("0::/a/b/c/below\n"), Some(10));
        assert_eq!(limit("0::/\n"), Some(70));
        assert_eq!(limit("0::/gone/from (deleted)\n"), Some(70));
        assert_eq!(limit("4:cpu,pids:/beside\n1:name=memory:/beside\n"), None);
        for text in ["", "\n", "0", "0:", "0::", "x:y", "::::\n"] {
            assert!([None, Some(70)].contains(&limit(text)), "{text:?}");
        }
    }

    #[test]
    fn both_versions_of_groups_apply() {
        let root = mounts(&[
            ("memory/memory.limit_in_bytes", UNLIMITED),
            ("memory/a/memory.limit_in_bytes", "40\n"),
            ("memory/a/with:colon/memory.limit_in_bytes", UNLIMITED),
            ("unified/b/memory.max", "35\n"),
            ("unified/c/memory.max", "max\n"),
        ]);
        let limit = |groups| least_limit(root.path(), groups);
        assert_eq!(limit("5:cpu:/\n4:memory:/a/with:colon\n0::/c\n"), Some(40));
        assert_eq!(limit("4:cpuset,memory:/a\n0::/b\n"), Some(35));
        assert_eq!(limit("4:memory:/\n0::/\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn limit_that_is_no_number_is_ignored() {
        let root = mounts(&[("a/memory.max", "much"), ("a/b/memory.max", "-1"), ("a/c/memory.max", "")]);
        assert_eq!(least_limit(root.path(), "0::/a/b\n"), None);
        assert_eq!(least_limit(root.path(), "0::/a/c\n"), None);
        assert!(usable_memory() > 0);
    }
}
