//! Checks that a run fails if a store returns wrong results. Also checks that a walk through the keys with
//! the step of `step_through` visits every key once.

use std::collections::BTreeMap;

use super::*;
use crate::keys::VisitPair;
use crate::method::{Control, Rounds, SideWithWorkers, measure};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    LosesAPut,
    ReturnsAnotherValue,
    LendsAnotherEnd,
    KeepsAnErasedKey,
    ScansTooLittle,
}

/// A map that is wrong in one way, or right.
struct MapSession(BTreeMap<Vec<u8>, Vec<u8>>, Option<Defect>);

impl MapSession {
    fn has(&self, defect: Defect) -> bool {
        self.1 == Some(defect)
    }

    fn find(&self, key: &[u8]) -> Option<&Vec<u8>> {
        if self.has(Defect::ReturnsAnotherValue) { self.0.values().next() } else { self.0.get(key) }
    }
}

impl KeySession for MapSession {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let found = self.find(key);
        out.extend(found.into_iter().flatten());
        Ok(found.is_some())
    }

    fn view(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut value = self.find(key).cloned();
        if let Some(last) = value.as_mut().and_then(|value| value.last_mut()) {
            *last ^= u8::from(self.has(Defect::LendsAnotherEnd));
        }
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.has(Defect::LosesAPut) {
            self.0.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn erase(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.has(Defect::KeepsAnErasedKey) || self.0.remove(key).is_some())
    }

    fn put_all(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.0.extend(pairs.iter().cloned());
        Ok(())
    }

    fn scan(&mut self, _sorted: bool, visit: &mut VisitPair<'_>) -> Result<()> {
        let skipped = usize::from(self.has(Defect::ScansTooLittle));
        let value_of = |key: &Vec<u8>, own| self.find(key).unwrap_or(own);
        self.0.iter().skip(skipped).for_each(|(key, value)| visit(key, value_of(key, value)));
        Ok(())
    }
}

/// Runs these operations on a store with `defect`.
fn run(defect: Option<Defect>, operations: &[KeyOperation]) -> Result<()> {
    const KEYS: u64 = 2000;
    // The scale has twice as many keys as the worker, so the worker loads as one of two threads. Such a load
    // puts the keys into the existing store, which has the defect. The load of a single thread would replace
    // the store.
    let scales = vec![StoreScale { keys: 2 * KEYS, value_bytes: 100 }];
    let work = Keys::of(scales, operations, 32);
    let directory = tempfile::tempdir().expect("a directory");
    let store = LoadedStore {
        session: Some(Box::new(MapSession(BTreeMap::new(), defect))),
        first: 0,
        versions: vec![0; KEYS as usize],
        all: KEYS,
        value_bytes: 100,
        erased: 0,
        batched: 0,
    };
    let worker = KeyWorker {
        rows: Arc::new(work.rows()),
        storage: Side::of_directory(directory.path())?.storage(),
        stores: vec![store],
        chooser: Chooser::new(1),
        key: NumberedName::new("key-"),
        work: work.clone(),
    };
    let workers: Vec<Box<dyn Worker>> = vec![Box::new(worker)];
    let side =
        SideWithWorkers { name: "a map".to_owned(), workers, count: Arc::new(|| Ok(None)), orders: false };
    let control = Control { rounds: Rounds::exactly(1), stop: || false, progress: &mut |_| {} };
    measure(&Workload::plan(&work, 2), vec![side], control).map(drop)
}

#[test]
fn store_with_wrong_results_fails_the_run() {
    run(None, &OPERATIONS[1..]).expect("a right store passes");
    for (defect, operation, message) in [
        (Defect::LosesAPut, Put, "2000 of 2000 keys were found, and"),
        (Defect::ReturnsAnotherValue, Get, "has a wrong value"),
        (Defect::ReturnsAnotherValue, View, "has a wrong value"),
        (Defect::LendsAnotherEnd, View, "has a wrong value in place"),
        (Defect::KeepsAnErasedKey, Erase, "has a value after its erase"),
        (Defect::ScansTooLittle, Scan, "a scan found 1999 keys"),
        (Defect::ScansTooLittle, ScanSorted, "a scan found 1999 keys"),
        (Defect::ReturnsAnotherValue, Scan, "a scan found other values"),
        (Defect::ReturnsAnotherValue, ScanSorted, "a scan found other values"),
        (Defect::ScansTooLittle, Batch, "0 of 2000 keys were found"),
    ] {
        let error = run(Some(defect), &[operation]).expect_err(message).to_string();
        assert!(error.starts_with("a map: ") && error.contains(message), "{error}");
    }
}

#[test]
fn steps_visit_every_key_once() {
    for keys in (1..200).chain([1000, 1024, 99_991, 100_000]) {
        let step = step_through(keys);
        let visited: std::collections::BTreeSet<u64> = (0..keys).map(|at| at * step % keys).collect();
        assert_eq!(visited.len() as u64, keys);
        let first: Vec<u64> = (0..keys.min(5)).map(|at| at * step % keys).collect();
        let near = first.iter().flat_map(|&one| first.iter().map(move |&other| one.abs_diff(other)));
        assert!(keys < 1000 || near.filter(|&gap| gap > 0).min() >= Some(keys / 10), "{keys}: {step}");
    }
}
