//! The one encoding of Ops.
