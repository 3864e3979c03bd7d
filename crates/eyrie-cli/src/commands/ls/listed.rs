//! A file in a listing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use eyrie::{Kind, Stat};
use serde_json::Value;

use crate::output::{json_name, json_stat};
use crate::place::Inside;

/// A file in a listing.
pub(super) struct Listed {
    /// The name to print. For an argument it is the place, such as `vol:/file`.
    pub name: OsString,
    /// The place of the file.
    pub place: Inside,
    pub kind: Kind,
    /// The attributes, if the listing needs them.
    pub stat: Option<Stat>,
    /// The target of a symbolic link, if the listing needs attributes.
    pub target: Option<Vec<u8>>,
    /// True if the file has an ACL, and the listing has columns.
    pub has_acl: bool,
}

impl Listed {
    /// Returns the attributes as JSON, if they were read.
    pub fn json(&self) -> Option<Value> {
        let mut value = json_stat(self.stat.as_ref()?);
        json_name(&mut value, "volume", self.place.volume.as_os_str().as_bytes());
        json_name(&mut value, "path", self.place.path.as_os_str().as_bytes());
        if let Some(target) = &self.target {
            json_name(&mut value, "target", target);
        }
        Some(value)
    }
}
