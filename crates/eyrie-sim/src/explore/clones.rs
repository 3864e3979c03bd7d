//! Built-in scripts for files that share extents.

use crate::script::Script;

/// The script that makes files with shared extents. `/x` and `/y` are trees, because the small overwrite
/// divides the extent of `/x` before the clone. `/z` and `/w` are files of one extent. `/u` has storage past
/// its end. `/v` begins with a hole of one page, and then shares the extent of `/u`.
const SETUP: &str = "\
creat /x
write /x 0 30000 60
write /x 5000 10 61
creat /y
clone /x 0 /y 0 0
creat /z
write /z 0 20000 62
creat /w
clone /z 0 /w 0 0
creat /u
write /u 0 9000 63
fallocate /u keep-size 0 30000
creat /v
clone /u 0 /v 4096 0
";

/// Scripts over the files of [`SETUP`], separated by empty lines.
const SCRIPTS: &str = "\
write /x 0 8 70
write /y 8 8 71

write /w 16 8 72
write /z 4096 4096 73

append /y 100 74
append /x 5000 75

append /w 100 76
append /z 50 77

unlink /x
creat /n
write /n 0 60000 78
unlink /y

truncate /z 100
append /z 30000 79
truncate /w 0

clone /x 0 /z 0 0
clone /y 4096 /x 4096 8192
unlink /y

clone /z 0 /y 4096 8192
clone /y 0 /u 8192 0

truncate /y 40000
truncate /w 30000

fallocate /y unshare-range 0 20000
fallocate /x punch-hole 0 8192
fallocate /w unshare-range-keep-size 4096 4096

fallocate /x collapse-range 4096 8192
fallocate /y insert-range 8192 4096
fallocate /z zero-range 0 8192

append /u 100 80
append /v 8 81
fallocate /v keep-size 0 50000
append /v 100 82

clone /x 0 /x 32768 0
write /x 32768 8 83
truncate /x 32768
";

/// Returns the script that makes the files of [`scripts`].
pub fn setup() -> Script {
    parse(SETUP)
}

/// Returns scripts that change, extend, truncate and remove files with shared extents, and clone them again.
pub fn scripts() -> Vec<Script> {
    SCRIPTS.split("\n\n").map(parse).collect()
}

fn parse(text: &str) -> Script {
    Script::parse("clones", text.as_bytes()).expect("a constant script")
}
