//! Bytes in place: the values of a store, and ranges of a file.

use std::ops::Deref;

/// Bytes of a value or of a file: in place, or a copy if the bytes cannot be lent as one slice.
/// [`Kvfs::get_in_place`](crate::Kvfs::get_in_place) and [`File::view`](crate::File::view) return views.
///
/// # Examples
/// ```
/// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
/// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
/// # let store = volume.store("/", eyrie::Credentials::root())?;
/// # use eyrie::View;
/// store.put("colour", "blue")?;
/// let pin = store.pin();
/// match store.get_in_place("colour", &pin)? {
///     Some(View::InPlace(bytes)) => println!("{} bytes in place", bytes.len()),
///     Some(other) => println!("{} bytes, copied", other.len()),
///     None => println!("no value"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum View<'a> {
    /// The bytes where they are stored.
    InPlace(&'a [u8]),
    /// A copy of the bytes.
    Copied(Vec<u8>),
}

impl View<'_> {
    /// Returns the bytes as a vector. Bytes in place are copied.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// let pin = store.pin();
    /// let value = store.get_in_place("colour", &pin)?.expect("it was put");
    /// assert_eq!(value.into_vec(), b"blue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            View::InPlace(bytes) => bytes.to_vec(),
            View::Copied(bytes) => bytes,
        }
    }

    /// True if the bytes are in place.
    ///
    /// # Examples
    /// ```
    /// # let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    /// # let volume = eyrie::Volume::create(place.path().join("nest"), 1 << 20)?;
    /// # let store = volume.store("/", eyrie::Credentials::root())?;
    /// store.put("colour", "blue")?;
    /// let pin = store.pin();
    /// let value = store.get_in_place("colour", &pin)?.expect("it was put");
    /// assert!(value.is_in_place());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_in_place(&self) -> bool {
        matches!(self, View::InPlace(_))
    }
}

impl Deref for View<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            View::InPlace(bytes) => bytes,
            View::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for View<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
