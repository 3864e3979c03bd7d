//! Built-in scripts, each of which uses a feature of the format for the first time in its volume.

use super::rights;
use crate::script::Script;

/// The script that makes a volume without any feature.
const SETUP: &str = "\
creat /a
write /a 0 5000 1
creat /b
write /b 0 100 2
mkdir /d
";

/// Scripts over the objects of [`SETUP`], separated by empty lines.
const SCRIPTS: &str = "\
chattr /a i

fallocate /a keep-size 8192 30000

clone /a 0 /b 0 0

project /d 9
quota tree 9 0 64K 0 0
creat /d/x
mkdir /d/e
put /d k 300 3

quota user 7 0 64K 0 3
chown /b 7 -1

rename /a /d/a whiteout

read /a
";

fn parse(text: &str) -> Script {
    Script::parse("features", text.as_bytes()).expect("a constant script")
}

pub(super) fn setup() -> Script {
    parse(SETUP)
}

/// Returns a script for each feature, and scripts for whiteouts and access times, although these two need no
/// feature in the superblock.
pub(super) fn scripts() -> Vec<Script> {
    let rights = rights::calls().into_iter().map(|call| [call].into_iter().collect());
    SCRIPTS.split("\n\n").map(parse).chain(rights).collect()
}
