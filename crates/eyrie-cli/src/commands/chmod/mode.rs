//! Modes of chmod(1): octal numbers, and symbolic clauses such as `u+rwX,go-w`. The rules are those of GNU
//! chmod.

/// All bits of a mode.
const ALL: u16 = 0o7777;
/// The set-id bits. A directory keeps them unless the mode names them.
const SET_ID: u16 = 0o6000;

/// The changes that a mode argument asks for, in order.
#[derive(Clone, Debug)]
pub(super) struct ModeChange(Vec<Change>);

/// One operator with its operands.
#[derive(Clone, Debug)]
struct Change {
    operator: Operator,
    /// The bits of the users that the clause names. 0 if the clause names no users; the umask then applies.
    affected: u16,
    value: u16,
    source: Source,
    /// The bits that the clause names. A directory keeps set-id bits that are not named.
    mentioned: u16,
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Add,
    Remove,
    Set,
}

/// The origin of the bits of a change.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The value alone.
    Value,
    /// The value, and execution if the file is a directory or somebody may execute it (`X`).
    ExecuteIfAny,
    /// The permissions that a class of users has in the file (such as the owner in `g=u`). The value has the
    /// bits of this class.
    Present,
}

impl ModeChange {
    /// Parses a mode argument.
    ///
    /// # Errors
    /// Fails with a message for the user.
    pub fn parse(argument: &str) -> Result<ModeChange, String> {
        let changes = if argument.starts_with(|first: char| first.is_ascii_digit()) {
            octal(argument).map(|change| vec![change])
        } else {
            let mut changes = Vec::new();
            let parsed = argument.split(',').map(|clause| parse_clause(clause, &mut changes));
            parsed.collect::<Option<()>>().map(|()| changes)
        };
        changes.map(ModeChange).ok_or_else(|| "modes are written like 644, u+x or go-w,a=rX".to_owned())
    }

    /// Returns the new mode of a file with the mode `mode`. `umask` is that of the process.
    pub fn apply(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        self.0.iter().fold(mode, |mode, change| change.apply(mode, is_dir, umask))
    }
}

/// Parses an octal mode. A directory keeps set-id bits that the digits do not set, unless the mode has five
/// digits or more.
fn octal(digits: &str) -> Option<Change> {
    let valid = digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let value = u16::from_str_radix(digits, 8).ok().filter(|&value| valid && value <= ALL)?;
    let mentioned = if digits.len() < 5 { value & SET_ID | !SET_ID & ALL } else { ALL };
    Some(Change { operator: Operator::Set, affected: ALL, value, source: Source::Value, mentioned })
}

/// Parses a clause such as `ug+rw-x` and adds its changes.
fn parse_clause(clause: &str, changes: &mut Vec<Change>) -> Option<()> {
    let start = clause.find(['+', '-', '='])?;
    let (who, mut rest) = clause.split_at(start);
    let affected = who.chars().try_fold(0, |bits, user| Some(bits | user_bits(user)?))?;
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            _ => Operator::Set,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |end| end + 1);
        let mut change = operands(operator, affected, &rest[1..end])?;
        if change.mentioned == 0 {
            change.mentioned = if affected == 0 { change.value } else { affected & change.value };
        }
        changes.push(change);
        rest = &rest[end..];
    }
    Some(())
}

/// Returns the bits of the users that a letter names: `u`, `g`, `o` or `a`.
fn user_bits(user: char) -> Option<u16> {
    match user {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(ALL),
        _ => None,
    }
}

/// Parses the part of a clause after its operator.
fn operands(operator: Operator, affected: u16, text: &str) -> Option<Change> {
    if affected == 0 && text.starts_with(|first: char| first.is_ascii_digit()) {
        // After an operator the digits name all bits, so `=755` takes the set-id bits of a directory away.
        return Some(Change { operator, mentioned: ALL, ..octal(text)? });
    }
    let present = match text {
        "u" => Some(0o700),
        "g" => Some(0o070),
        "o" => Some(0o007),
        _ => None,
    };
    if let Some(value) = present {
        return Some(Change { operator, affected, value, source: Source::Present, mentioned: 0 });
    }
    let (mut value, mut source) = (0, Source::Value);
    for letter in text.chars() {
        match letter {
            'r' => value |= 0o444,
            'w' => value |= 0o222,
            'x' => value |= 0o111,
            'X' => source = Source::ExecuteIfAny,
            's' => value |= SET_ID,
            't' => value |= 0o1000,
            _ => return None,
        }
    }
    Some(Change { operator, affected, value, source, mentioned: 0 })
}

impl Change {
    fn apply(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        let kept = if is_dir { SET_ID & !self.mentioned } else { 0 };
        let mut value = self.value;
        match self.source {
            Source::Value => {}
            Source::ExecuteIfAny if is_dir || mode & 0o111 != 0 => value |= 0o111,
            Source::ExecuteIfAny => {}
            Source::Present => {
                let present = value & mode;
                // The value has the bits of one class of users, so two of the three digits are 0.
                value = ((present >> 6 | present >> 3 | present) & 7) * 0o111;
            }
        }
        value &= if self.affected == 0 { !umask } else { self.affected } & !kept;
        match self.operator {
            Operator::Add => mode | value,
            Operator::Remove => mode & !value,
            Operator::Set => {
                let others = if self.affected == 0 { 0 } else { !self.affected };
                mode & (others | kept) & ALL | value & ALL
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(argument: &str, mode: u16, is_dir: bool) -> u16 {
        ModeChange::parse(argument).unwrap().apply(mode, is_dir, 0o022)
    }

    #[test]
    fn modes_change_as_with_gnu_chmod() {
        for (argument, before, after) in [
            ("600", 0o755, 0o600),
            ("4755", 0o600, 0o4755),
            ("u+x", 0o644, 0o744),
            ("+x", 0o644, 0o755),
            ("+w", 0o444, 0o644),
            ("-w", 0o666, 0o466),
            ("a-w", 0o666, 0o444),
            ("=r", 0o777, 0o444),
            ("go=", 0o777, 0o700),
            ("go=u", 0o740, 0o777),
            ("u=g-w", 0o760, 0o460),
            ("g+u,o-rwx", 0o705, 0o770),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u+x,a+X", 0o644, 0o755),
            ("u+s", 0o755, 0o4755),
            ("g+s,+t", 0o755, 0o3755),
            ("u+t", 0o755, 0o755),
            ("o=t", 0o757, 0o1750),
            ("=640", 0o777, 0o640),
            ("+111", 0o644, 0o755),
        ] {
            assert_eq!(changed(argument, before, false), after, "{argument} on {before:o}");
        }
    }

    #[test]
    fn directories_keep_set_id_bits_that_are_not_named() {
        assert_eq!(changed("755", 0o2700, true), 0o2755);
        assert_eq!(changed("00755", 0o2700, true), 0o755);
        assert_eq!(changed("=755", 0o2700, true), 0o755);
        assert_eq!(changed("+055", 0o6700, true), 0o6755);
        assert_eq!(changed("-700", 0o6700, true), 0o6000);
        assert_eq!(changed("755", 0o2700, false), 0o755);
        assert_eq!(changed("g=rx", 0o2700, true), 0o2750);
        assert_eq!(changed("g-s", 0o2750, true), 0o750);
        assert_eq!(changed("a+X", 0o600, true), 0o711);
    }

    #[test]
    fn wrong_modes_are_refused() {
        for argument in ["", "8", "99999", "10000", "u", "u+q", "u!x", "rw", "u+x,", "u+7", "+ug", "u+4"] {
            assert!(ModeChange::parse(argument).is_err(), "{argument}");
        }
    }
}
