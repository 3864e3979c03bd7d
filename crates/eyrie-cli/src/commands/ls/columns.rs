//! The columns of `ls -l`.

use eyrie::{Kind, Stat};

use super::LsArgs;
use super::listed::Listed;
use crate::text;
use crate::times::Zone;
use crate::users::Names;

/// Number of columns before the name of a file.
const COLUMNS: usize = 6;

/// The form of the columns.
pub(super) struct Columns {
    /// The names of users and groups. `None` shows their numbers.
    names: Option<Names>,
    zone: Zone,
    full_time: bool,
    human_readable: bool,
}

impl Columns {
    pub fn new(arguments: &LsArgs) -> Columns {
        let names = arguments.has_columns() && !arguments.numeric_uid_gid;
        Columns {
            names: names.then(Names::of_host),
            zone: Zone::of_host(),
            full_time: arguments.full_time,
            human_readable: arguments.human_readable,
        }
    }

    /// Returns the columns before the name, as one line for each file whose attributes are known. Each column
    /// has the same width in all lines.
    pub fn lines(&self, shown: &[Listed]) -> Vec<String> {
        let rows = shown.iter().filter_map(|listed| Some(self.row(listed.stat.as_ref()?, listed.has_acl)));
        let rows: Vec<[String; COLUMNS]> = rows.collect();
        let mut widths = [0; COLUMNS];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        rows.iter().map(|row| self.line(row, widths)).collect()
    }

    fn row(&self, stat: &Stat, has_acl: bool) -> [String; COLUMNS] {
        let (user, group) = match &self.names {
            Some(names) => (names.user(stat.uid), names.group(stat.gid)),
            None => (stat.uid.to_string(), stat.gid.to_string()),
        };
        let time =
            if self.full_time { self.zone.full(stat.modified) } else { self.zone.minute(stat.modified) };
        // As in GNU ls, the mode of a file with an ACL ends with a plus sign.
        let mode = text::mode(stat.kind, stat.mode) + if has_acl { "+" } else { "" };
        [mode, stat.links.to_string(), user, group, self.size(stat), time]
    }

    /// Formats the size of a file, or the major and minor numbers of a device.
    fn size(&self, stat: &Stat) -> String {
        match stat.kind {
            Kind::CharDevice | Kind::BlockDevice => {
                format!("{}, {}", rustix::fs::major(stat.device), rustix::fs::minor(stat.device))
            }
            _ if self.human_readable => text::short_size(stat.size),
            _ => stat.size.to_string(),
        }
    }

    /// Joins the cells of a row. Numbers are aligned to the right, and names to the left.
    fn line(&self, row: &[String; COLUMNS], widths: [usize; COLUMNS]) -> String {
        let [mode, links, user, group, size, time] = row;
        let [mode_width, links_width, user_width, group_width, size_width, time_width] = widths;
        let owner = if self.names.is_some() {
            format!("{user:<user_width$} {group:<group_width$}")
        } else {
            format!("{user:>user_width$} {group:>group_width$}")
        };
        format!("{mode:<mode_width$} {links:>links_width$} {owner} {size:>size_width$} {time:>time_width$}")
    }
}
