//! Storage objects of the engine `scm`, as in section 4.4 of the Aerie paper (EuroSys 2014).
//!
//! Every object has a `header`. The root pointer in the header leads to an mFile (`mfile`) with the bytes of
//! a file or symbolic link, or to a collection (`collection`) with the entries of a directory. Extended
//! attributes (`xattr`) are in one further extent. The docs of each module say why a power failure does no
//! harm.

pub mod collection;
pub mod header;
pub mod mfile;
pub mod pointer;
pub(crate) mod visit;
pub(crate) mod xattr;
