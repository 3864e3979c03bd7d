//! Names of users and groups, as the host's `/etc/passwd` and `/etc/group` list them.

use std::collections::HashMap;
use std::fs;

/// The users and the groups of the host. The files are read once for each command.
#[derive(Debug)]
pub struct Names {
    users: Table,
    groups: Table,
}

/// Names by number. As for getpwuid(3), the first line with a number counts.
#[derive(Debug)]
struct Table(HashMap<u32, String>);

impl Table {
    /// Parses the text of a file. Skips lines that are not well-formed.
    fn parse(text: &str) -> Table {
        let mut names = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            if let (Some(name), _, Some(Ok(number))) =
                (fields.next(), fields.next(), fields.next().map(str::parse))
            {
                names.entry(number).or_insert_with(|| name.to_owned());
            }
        }
        Table(names)
    }

    fn name(&self, number: u32) -> String {
        self.0.get(&number).cloned().unwrap_or_else(|| number.to_string())
    }
}

impl Names {
    /// Reads the names of the host. A file that cannot be read has no names.
    pub fn of_host() -> Names {
        let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Names::parse(&read("/etc/passwd").unwrap_or_default(), &read("/etc/group").unwrap_or_default())
    }

    fn parse(passwd: &str, group: &str) -> Names {
        Names { users: Table::parse(passwd), groups: Table::parse(group) }
    }

    /// Returns the name of a user, or the number as text if no name is known.
    pub fn user(&self, uid: u32) -> String {
        self.users.name(uid)
    }

    /// Returns the name of a group, or the number as text if no name is known.
    pub fn group(&self, gid: u32) -> String {
        self.groups.name(gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n+\nada:x:7:8\ntoor:x:0:9::\nbroken:x:z:1\n";
        let names = Names::parse(passwd, "staff:x:8:ada\nwheel:x:0:\n42:x:9:\n");
        assert_eq!((names.user(0), names.user(7), names.user(5)), ("root".into(), "ada".into(), "5".into()));
        assert_eq!((names.group(8), names.group(1)), ("staff".into(), "1".into()));
    }
}
