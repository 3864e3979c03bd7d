//! Calls of a built-in script that set, reach and remove limits of quotas.

/// Calls that set the first limits of a user. The user's storage and number of files then reach these limits.
const USER_LIMITS: &str = "
creat /f
write /f 0 9000 1
chown /f 7 70
creat /g
write /g 0 5000 2
quota user 7 0 64K 0 3
append /f 5000 3
write /f 0 100 4
append /f 60000 5                   # above the limit of storage
setxattr /f user.one one
clone /f 0 /g 0 0
chown /g 7 -1
creat /h
chown /h 7 -1
creat /i
chown /i 7 -1                       # above the limit of files
chown /g 8 -1
quota user 8 4096 20K 0 0
append /g 30000 6                   # above the limit of another user
truncate /f 100
unlink /h
chown /i 7 -1
fallocate /i keep-size 0 16K
";

/// Calls that set the limits of a tree. New objects, names, values and whiteouts then reach these limits.
const TREE_LIMITS: &str = "
mkdir /t
project /t 9
quota tree 9 0 64K 2 5
creat /t/a
mkdir /t/d
put /t k 3000 7
tmpfile /t /t/e 3000 8
creat /t/x                          # above the limit of files
batch /t put k 5000 9 erase a put x 100 10
rename /t/a /t/d/a whiteout
link /f /t/l                        # an object of no tree
rename /f /t/f
rename /t/a /t/d/a
unlink /t/d/a
batch /t put k 5000 9 put x 100 10
put /t k 80000 11                   # above the limit of storage
rename /t/e /e
project /e 0
creat /t/y
";

/// Calls that remove the limits of a user, and then all limits.
const REMOVED_LIMITS: &str = "
quota user 7 0 0 0 0
append /f 50000 12
removexattr / trusted.eyrie.quota
append /g 30000 13
creat /t/z
link /f /t/l
";

pub(super) fn calls() -> String {
    [USER_LIMITS, TREE_LIMITS, REMOVED_LIMITS].concat()
}
