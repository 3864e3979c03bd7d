//! The weights of the kinds of steps.

/// Weights of the kinds of steps. A kind with weight 0 is never drawn.
#[expect(missing_docs, reason = "named as the Ops")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpMix {
    pub create: u32,
    pub create_unnamed: u32,
    pub link: u32,
    pub unlink: u32,
    pub remove_directory: u32,
    pub rename: u32,
    pub write: u32,
    pub append: u32,
    pub set_size: u32,
    pub fallocate: u32,
    pub clone_range: u32,
    pub set_attributes: u32,
    pub mark_access: u32,
    pub set_xattr: u32,
    pub remove_xattr: u32,
    pub set_acl: u32,
    pub put: u32,
    pub erase: u32,
    pub batch: u32,
    pub open: u32,
    pub close: u32,
    /// Limits of quotas. If this weight is not 0, few users own the objects, and objects get project ids.
    pub set_limits: u32,
    /// True if offsets and sizes reach 2^63 - 1 and beyond.
    pub is_sparse: bool,
    /// True if names may be empty or too long.
    pub has_bad_names: bool,
}

impl Default for OpMix {
    fn default() -> OpMix {
        OpMix {
            create: 20,
            create_unnamed: 3,
            link: 5,
            unlink: 6,
            remove_directory: 4,
            rename: 20,
            write: 20,
            append: 6,
            set_size: 8,
            fallocate: 8,
            clone_range: 7,
            set_attributes: 5,
            mark_access: 4,
            set_xattr: 6,
            remove_xattr: 2,
            set_acl: 6,
            put: 8,
            erase: 3,
            batch: 5,
            open: 3,
            close: 2,
            set_limits: 0,
            is_sparse: true,
            has_bad_names: true,
        }
    }
}

impl OpMix {
    /// Returns a mix in which all weights are 0.
    pub fn none() -> OpMix {
        OpMix {
            create: 0,
            create_unnamed: 0,
            link: 0,
            unlink: 0,
            remove_directory: 0,
            rename: 0,
            write: 0,
            append: 0,
            set_size: 0,
            fallocate: 0,
            clone_range: 0,
            set_attributes: 0,
            mark_access: 0,
            set_xattr: 0,
            remove_xattr: 0,
            set_acl: 0,
            put: 0,
            erase: 0,
            batch: 0,
            open: 0,
            close: 0,
            set_limits: 0,
            ..OpMix::default()
        }
    }
}
