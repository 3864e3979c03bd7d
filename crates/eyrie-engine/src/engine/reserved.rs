//! Changes that may use a reserved id.

use super::Engine;
use crate::{Error, Kind, ObjectId, Result};

/// Reserves an id of this kind and makes a change that may use it. Gives the id back if the change fails. If
/// the id was lost with the service that had reserved it, reserves another id and makes the change again.
///
/// # Errors
/// Those of [`Engine::reserve`] and of `change`.
#[inline]
pub fn with_reserved<E: Engine, T>(
    engine: &E,
    kind: Kind,
    mut change: impl FnMut(ObjectId) -> Result<T>,
) -> Result<T> {
    loop {
        let id = engine.reserve(kind)?;
        match change(id) {
            Err(Error::NotReserved) => {}
            Err(error) => {
                engine.unreserve(id);
                return Err(error);
            }
            done => return done,
        }
    }
}
