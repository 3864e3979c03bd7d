//! Names of users and groups, as the host's `/etc/passwd` and `/etc/group` list them.

use std::collections::HashMap;
use std::fs;

/// The users and the groups of the host. The files are read once for each command.
#[derive(Debug, Default)]
pub struct Names {
    users: Table,
    groups: Table,
    /// The login group of each user name. Several names of one number may have different groups.
    login_groups: HashMap<String, u32>,
}

/// Names and numbers. If several lines have the same name or number, the first is used, as in getpwuid(3).
#[derive(Debug, Default)]
struct Table {
    names: HashMap<u32, String>,
    numbers: HashMap<String, u32>,
}

impl Table {
    fn add(&mut self, name: &str, number: u32) {
        self.names.entry(number).or_insert_with(|| name.to_owned());
        self.numbers.entry(name.to_owned()).or_insert(number);
    }

    fn name(&self, number: u32) -> String {
        self.names.get(&number).cloned().unwrap_or_else(|| number.to_string())
    }

    /// Returns the number of the entry `name`. Text that is no known name may be a number, except the largest
    /// number of 32 bits: a change of the owner to that number would leave the owner unchanged.
    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied().or_else(|| name.parse().ok().filter(|&number| number != u32::MAX))
    }
}

impl Names {
    /// Reads the names of the host. A file that cannot be read has no names.
    pub fn of_host() -> Names {
        let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Names::parse(&read("/etc/passwd").unwrap_or_default(), &read("/etc/group").unwrap_or_default())
    }

    /// Parses the texts of both files. Skips lines that are not well-formed.
    fn parse(passwd: &str, group: &str) -> Names {
        let mut names = Names::default();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            let (Some(name), _, Some(uid)) = (fields.next(), fields.next(), number(fields.next())) else {
                continue;
            };
            names.users.add(name, uid);
            if let Some(gid) = number(fields.next()) {
                names.login_groups.entry(name.to_owned()).or_insert(gid);
            }
        }
        for line in group.lines() {
            let mut fields = line.split(':');
            if let (Some(name), _, Some(gid)) = (fields.next(), fields.next(), number(fields.next())) {
                names.groups.add(name, gid);
            }
        }
        names
    }

    /// Returns the name of a user, or the number as text if no name is known.
    pub fn user(&self, uid: u32) -> String {
        self.users.name(uid)
    }

    /// Returns the name of a group, or the number as text if no name is known.
    pub fn group(&self, gid: u32) -> String {
        self.groups.name(gid)
    }

    /// Returns the user with this name. Text that is no known name may be a number.
    pub fn uid(&self, user: &str) -> Option<u32> {
        self.users.number(user)
    }

    /// Returns the group with this name. Text that is no known name may be a number.
    pub fn gid(&self, group: &str) -> Option<u32> {
        self.groups.number(group)
    }

    /// Returns the login group of the user with this name or number, if the user is known.
    pub fn login_group(&self, user: &str) -> Option<u32> {
        let of_number = || self.login_groups.get(self.users.names.get(&user.parse().ok()?)?);
        self.login_groups.get(user).or_else(of_number).copied()
    }
}

fn number(field: Option<&str>) -> Option<u32> {
    field?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n+\nada:x:7:8\ntoor:x:0:9::\nbroken:x:z:1\n";
        let names = Names::parse(passwd, "staff:x:8:ada\nwheel:x:0:\n42:x:9:\n");
        assert_eq!((names.user(0), names.user(7), names.user(5)), ("root".into(), "ada".into(), "5".into()));
        assert_eq!((names.group(8), names.group(1)), ("staff".into(), "1".into()));
        assert_eq!((names.uid("toor"), names.uid("ada"), names.uid("3")), (Some(0), Some(7), Some(3)));
        assert_eq!((names.uid("eve"), names.uid("-1"), names.uid("4294967295")), (None, None, None));
        assert_eq!((names.gid("42"), names.gid("wheel")), (Some(9), Some(0)));
        assert_eq!(
            ["7", "ada", "root", "0", "toor", "3"].map(|user| names.login_group(user)),
            [Some(8), Some(8), Some(0), Some(0), Some(9), None]
        );
    }
}
