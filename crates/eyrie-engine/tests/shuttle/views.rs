//! Views of files in place, beside changes of the bytes.

use std::sync::Arc;

use super::*;

#[test]
fn view_of_a_file_is_sealed_against_a_writer() {
    let _alone = alone();
    let start = Start::make();
    let old = <[u8; 8]>::try_from(&OLD[8..16]).expect("eight bytes");
    for (id, old) in [(start.file, old), (start.tree, [b'-'; 8])] {
        let start = start.clone();
        run(Bursts::new(1, 500), move || {
            let engine = start.open();
            let writer = shuttle::thread::spawn({
                let engine = Arc::clone(&engine);
                move || {
                    // Without the seal, these eight bytes would be stored in place.
                    for data in [[b'1'; 8], [b'2'; 8], [b'3'; 8]] {
                        let op = Op::Write { id, offset: 8, data: &data, set_ids: SetIds::Keep, time: LATER };
                        engine.apply(&op).expect("room");
                    }
                }
            });
            engine.seal(id).expect("there");
            let guard = epoch::pin();
            let view = engine.view(id, (8, 16), &guard).expect("there").expect("the file is sealed").bytes;
            let before = <[u8; 8]>::try_from(view).expect("eight bytes in place");
            assert!([old, [b'1'; 8], [b'2'; 8], [b'3'; 8]].contains(&before), "torn");
            shuttle::thread::yield_now();
            writer.join().expect("no panic");
            assert_eq!(view, before);
        });
    }
}
