//! Access times: which reads set them.
//!
//! An update is one Op of its own, after the read. So a crash between the two loses the update, and a failed
//! update leaves the read as it is.

use eyrie_engine::{Attributes, Engine, ObjectId, Op, Time};

use super::{AsUser, Pxfs};
use crate::posix::OpenFlags;

/// Seconds after which [`AccessTimes::Relative`] renews an access time.
const DAY: i64 = 24 * 60 * 60;

/// The reads that set the access time of a file, a directory or a symbolic link: see
/// [`Pxfs::with_access_times`].
///
/// ```
/// # use eyrie::*; fn f(files: &Files) {
/// assert_eq!(files.access_times(), AccessTimes::Never); // the default
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum AccessTimes {
    /// No read sets an access time, so reads make no changes (`noatime`).
    #[default]
    Never,
    /// A read sets the access time if the modification time or the change time is equal or newer, or if the
    /// access time is at least a day old (`relatime`).
    Relative,
    /// Every read sets the access time (`strictatime`).
    Always,
}

impl AccessTimes {
    /// True if a read at `now` sets the access time of an object with these attributes. The comparisons are
    /// those of Linux.
    fn needs_update(self, object: &Attributes, now: Time) -> bool {
        let Attributes { accessed, modified, changed, .. } = *object;
        let is_due = match self {
            AccessTimes::Never => false,
            AccessTimes::Relative => {
                modified >= accessed
                    || changed >= accessed
                    || now.seconds.saturating_sub(accessed.seconds) >= DAY
            }
            AccessTimes::Always => true,
        };
        is_due && accessed != now
    }
}

impl<E: Engine> Pxfs<E> {
    /// Returns the same file system with another choice of the reads that set access times. By default no
    /// read sets an access time. A read through a handle with [`OpenFlags::NOATIME`] never sets one.
    ///
    /// These calls are reads: `read_at`, `copy_file_range` for its source, a listing, `readlink`, a walk that
    /// follows a symbolic link, and a [view](crate::File::view) of a file. The update changes no other time.
    /// If the update fails, for example in a volume that was opened read-only, the read succeeds all the
    /// same.
    ///
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// use eyrie::{AccessTimes, Credentials, PosixExt};
    ///
    /// let files = volume.files(Credentials::root()).with_access_times(AccessTimes::Relative);
    /// files.write("/egg", "blue")?;
    /// let written = files.metadata("/egg")?;
    /// files.read("/egg")?;
    /// assert!(files.metadata("/egg")?.accessed >= written.accessed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_access_times(&self, access_times: AccessTimes) -> Pxfs<E> {
        Pxfs::over(super::Shared { access_times, ..self.shared.copy() })
    }

    /// Returns the choice of the reads that set access times.
    ///
    /// ```
    /// # use eyrie::*; fn f(files: &Files) {
    /// let reads_make_changes = files.access_times() != AccessTimes::Never;
    /// # }
    /// ```
    #[inline]
    pub fn access_times(&self) -> AccessTimes {
        self.shared.access_times
    }
}

impl<E: Engine> AsUser<'_, E> {
    /// Notes that an object was read, through a handle with these flags. Errors are ignored, because the read
    /// has succeeded.
    #[inline(always)]
    pub(super) fn note_read(&self, id: ObjectId, opened: OpenFlags) {
        if self.shared.access_times != AccessTimes::Never {
            self.update_access_time(id, opened);
        }
    }

    #[cold]
    #[inline(never)]
    fn update_access_time(&self, id: ObjectId, opened: OpenFlags) {
        if opened.contains(OpenFlags::NOATIME) || self.engine().is_read_only() {
            return;
        }
        // As in Linux, this stamp need not be newer than those that a caller has seen.
        let time = self.now([]);
        let object = self.engine().attributes(id);
        if object.is_ok_and(|object| self.shared.access_times.needs_update(&object, time)) {
            let _ = self.apply(&Op::MarkAccess { id, time });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_engine::Kind;

    #[test]
    fn relative_updates_follow_the_rules_of_linux() {
        let at = |seconds| Time::new(seconds, 5);
        let object = |accessed, modified, changed| Attributes {
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            allocated: 0,
            accessed: at(accessed),
            modified: at(modified),
            changed: at(changed),
            device: 0,
            parent: None,
        };
        let (now, day) = (1_000_000, DAY);
        for (accessed, modified, changed, relative) in [
            (now - 5, now - 9, now - 9, false),
            (now - 5, now - 5, now - 9, true),
            (now - 5, now - 4, now - 9, true),
            (now - 5, now - 9, now - 5, true),
            (now - 5, now - 9, now - 4, true),
            (now - day, now - day - 9, now - day - 9, true),
            (now - day + 1, now - day - 9, now - day - 9, false),
            (now + 5, now - 9, now - 9, false),
            (i64::MIN, i64::MIN, i64::MIN, true),
            (now, now, now, false),
        ] {
            let object = object(accessed, modified, changed);
            let update = |choice: AccessTimes| choice.needs_update(&object, at(now));
            assert_eq!(update(AccessTimes::Relative), relative, "{object:?}");
            assert_eq!(update(AccessTimes::Always), accessed != now, "{object:?}");
            assert!(!update(AccessTimes::Never), "{object:?}");
        }
    }
}
