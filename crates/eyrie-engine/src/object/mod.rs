//! Storage objects of the engine `scm`, as in section 4.4 of the Aerie paper (EuroSys 2014).

pub mod collection;
pub mod header;
pub mod mfile;
pub mod pointer;
pub(crate) mod visit;
pub(crate) mod xattr;
