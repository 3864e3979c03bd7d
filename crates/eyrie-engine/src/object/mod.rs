//! Storage objects of the scm engine (Aerie, `aerie.txt` section 4.4).

pub mod collection;
pub mod header;
pub mod mfile;
pub mod pointer;
pub(crate) mod visit;
pub(crate) mod xattr;
