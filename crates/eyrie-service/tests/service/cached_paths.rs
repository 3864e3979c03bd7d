//! A test of a cached path of a client, while another thread of the client joins the next service.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::SystemTime;

use eyrie::{PosixExt, Time};
use eyrie_engine::Errno;

use crate::Served;

std::thread_local! {
    /// Work for the next look of this thread at [`working_clock`].
    static WORK: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Does the work of this thread, and then returns the time. A removal looks at the clock after it has found
/// its directory in the cache, and before its first request.
fn working_clock() -> Time {
    if let Some(work) = WORK.take() {
        work();
    }
    Time::from(SystemTime::now())
}

#[test]
fn cached_directory_belongs_to_the_session_of_its_call() {
    const DIRECTORIES: u32 = 500;
    let served = Rc::new(RefCell::new(Served::new(64 << 20)));
    let files = served.borrow().files().with_clock(working_clock);
    files.create_dir("/nest").unwrap();
    files.write("/nest/stone", "grey").unwrap();
    files.remove_file("/nest/stone").unwrap();
    let nest = files.metadata("/nest").unwrap().inode;
    let replace = {
        let (served, files) = (Rc::clone(&served), files.clone());
        move || {
            let mut served = served.borrow_mut();
            served.end();
            served.change(|owner| owner.remove_dir("/nest").unwrap());
            // After an open, the engine first gives out the ids that are free.
            served.change(|owner| {
                for number in 0..DIRECTORIES {
                    owner.create_dir(format!("/dir-{number}")).unwrap();
                    owner.write(format!("/dir-{number}/egg"), "mine").unwrap();
                }
            });
            served.start();
            std::thread::scope(|scope| {
                let joining = scope.spawn(|| files.metadata("/dir-0").unwrap());
                joining.join().unwrap();
            });
        }
    };
    WORK.set(Some(Box::new(replace)));
    assert_eq!(files.remove_file("/nest/egg").unwrap_err().errno(), Errno::NOENT);
    assert!(WORK.take().is_none(), "the path was not in the cache");
    let inodes: Vec<u64> =
        (0..DIRECTORIES).map(|number| files.metadata(format!("/dir-{number}")).unwrap().inode).collect();
    assert!(inodes.contains(&nest), "the test needs a directory with the same id");
    for number in 0..DIRECTORIES {
        assert_eq!(files.read(format!("/dir-{number}/egg")).unwrap(), b"mine", "directory {number}");
    }
    drop(files);
    served.borrow_mut().stop();
}
