//! Volumes as a whole.
